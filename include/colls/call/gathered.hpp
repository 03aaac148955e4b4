// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// gathered: the results of calls of unknown lengths, in which no rank knows how many elements the
// others pass. Such a call allocates its result when the ranks have told each other the lengths.

#include <colls/call/buffer_list.hpp>
#include <colls/call/call.hpp>

#include <span>
#include <vector>

namespace colls {

/// Blocks of different lengths, one of each rank, in rank order and without gaps.
template <class T>
struct gathered {
  /// The elements of all blocks.
  std::vector<T> values;
  /// Block r begins at `offsets[r]` and ends before `offsets[r + 1]`. There is one offset more than
  /// there are ranks.
  std::vector<std::size_t> offsets;

  /// Returns the block of rank `rank`, which must be a rank of the communicator.
  std::span<T> block(int rank) { return {values.data() + first(rank), length(rank)}; }
  std::span<const T> block(int rank) const { return {values.data() + first(rank), length(rank)}; }

 private:
  std::size_t first(int rank) const { return offsets[static_cast<std::size_t>(rank)]; }
  std::size_t length(int rank) const {
    return offsets[static_cast<std::size_t>(rank) + 1] - first(rank);
  }
};

namespace detail {

/// What a call of unknown lengths fills, without the element type.
class resizable_result {
 public:
  /// Makes the result `count` elements long, and returns the address of the first element. Called
  /// at most once. If this function throws, the call fails on all ranks.
  virtual void* resize(std::size_t count) = 0;

  std::vector<std::size_t> offsets;  // of the blocks in the result, if it has blocks

 protected:
  ~resizable_result() = default;
};

/// The arguments of a call of unknown lengths, without the element type. A broadcast, an all_gather
/// or a gather has one block, a scatter and an all_to_all have one for each rank.
struct unknown_lengths_request {
  collective operation = collective::none;
  std::uint32_t type = 0;
  std::size_t element_size = 1;
  int root = -1;
  std::vector<any_view> blocks;  // of this rank; empty on ranks that pass none
};

/// A call of unknown lengths, whose result is of type `Value`. A derived class makes the value.
template <class Value>
class unknown_lengths_call : public call<Value>, public resizable_result {
 public:
  using call<Value>::call;

  task<> work;

  bool start_body(completion& done) override { return work.start(done); }

 protected:
  virtual Value take_value() = 0;

 private:
  void take_result() override {
    work.result();
    this->value.emplace(take_value());
    (void)(work = {});
  }
  void destroy_body() noexcept override { (void)(work = {}); }
};

/// A call whose result is a `gathered<T>`.
template <class T>
class gathering_call final : public unknown_lengths_call<gathered<T>> {
 public:
  using unknown_lengths_call<gathered<T>>::unknown_lengths_call;

  void* resize(std::size_t count) override {
    values_.resize(count);
    return values_.data();
  }

 private:
  gathered<T> take_value() override { return {std::move(values_), std::move(this->offsets)}; }

  std::vector<T> values_;
};

/// A call whose result is this rank's block.
template <class T>
class block_call final : public unknown_lengths_call<std::vector<T>> {
 public:
  using unknown_lengths_call<std::vector<T>>::unknown_lengths_call;

  void* resize(std::size_t count) override {
    values_.resize(count);
    return values_.data();
  }

 private:
  std::vector<T> take_value() override { return std::move(values_); }

  std::vector<T> values_;
};

/// std::vector<bool> has no elements in memory. A call recognises it only in order to refuse it.
template <class Range>
inline constexpr bool is_bit_vector = std::is_same_v<std::remove_cvref_t<Range>, std::vector<bool>>;
template <class Range>
struct gathered_element {
  using type = element_of<Range>;
};
template <class Range>
  requires is_bit_vector<Range>
struct gathered_element<Range> {
  using type = bool;
};

/// Checks at compile time that a call of unknown lengths can return elements of type `T`.
template <class Memory, class T>
constexpr void check_result_element() {
  static_assert(
      !std::is_void_v<T>,
      "colls: the element type of a tensor is known only at run time, so no call can make "
      "the result: pass the counts and a tensor for the result");
  static_assert(std::is_same_v<Memory, host_memory>,
                "colls: a call that gets no counts allocates its result in host memory, and this "
                "communicator moves device memory: exchange the counts and pass them");
  static_assert(!std::is_same_v<T, bool>,
                "colls: the result would be a std::vector<bool>, which has no elements in memory: "
                "use char as the element type");
  static_assert(std::is_void_v<T> || std::is_default_constructible_v<T>,
                "colls: the call makes the elements of its result before it receives them, so the "
                "element type needs a default constructor");
}

}  // namespace detail

}  // namespace colls
