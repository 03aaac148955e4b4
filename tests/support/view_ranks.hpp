// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Elements in layouts of several kinds, and ranks that make calls on them.

#include <colls/base/strided_view.hpp>

#include "../transport/suite.hpp"
#include "counted_memory.hpp"

#include <span>
#include <string>
#include <vector>

struct point {
  int x, y, z;
  static point make(int rank, int number) { return {number, rank, -number}; }
  friend bool operator==(const point&, const point&) = default;
};

/// Returns element `i` of the data of `rank`.
template <class T>
T value(int rank, std::size_t i) {
  const int number = static_cast<int>((static_cast<std::size_t>(rank) * 31 + i) % 50);
  if constexpr (requires { T::make(rank, number); }) {
    return T::make(rank, number);
  } else {
    return static_cast<T>(static_cast<float>(number));
  }
}

/// `count` elements in a layout that depends on `kind`, and memory between them that must not
/// change.
template <class T>
class field {
 public:
  static constexpr int kinds = 4;

  field(std::size_t count, int kind) : count_(count), memory_(3 * count + 3, gap()) {
    const auto n = static_cast<std::ptrdiff_t>(count);
    switch (kind % kinds) {
      case 0:
        layout(0, {count}, {1});
        break;  // contiguous
      case 1:
        layout(1, {count}, {3});
        break;  // a column
      case 2:
        layout(n == 0 ? 0 : 2 * (n - 1), {count}, {-2});
        break;  // backwards
      default:
        layout(0, {3, count / 3, 1}, {1, 4, 1}, count % 3 == 0);  // transposed
    }
    for (const std::size_t i : places_) memory_[i] = T{};
  }
  field(std::size_t count, int kind, int rank) : field(count, kind) {
    for (std::size_t i = 0; i < count; ++i) memory_[places_[i]] = value<T>(rank, i);
  }

  colls::strided_view<T> view() {
    return {memory_.data() + first_, std::span(extents_), std::span(strides_)};
  }
  std::vector<T> elements() const {
    std::vector<T> all;
    for (const std::size_t i : places_) all.push_back(memory_[i]);
    return all;
  }
  bool gaps_are_untouched() const {
    std::vector<T> memory = memory_;
    for (const std::size_t i : places_) memory[i] = gap();
    return memory == std::vector<T>(memory.size(), gap());
  }

 private:
  static T gap() { return value<T>(49, 0); }
  void layout(std::ptrdiff_t first, std::vector<std::size_t> extents,
              std::vector<std::ptrdiff_t> strides, bool fits = true) {
    if (!fits) return layout(0, {count_}, {2});
    first_ = first;
    extents_ = extents;
    strides_ = strides;
    for (std::size_t i = 0; i < count_; ++i) {
      std::ptrdiff_t place = first;
      std::size_t rest = i;
      for (std::size_t d = extents.size(); d-- > 0; rest /= extents[d]) {
        place += static_cast<std::ptrdiff_t>(rest % extents[d]) * strides[d];
      }
      places_.push_back(static_cast<std::size_t>(place));
    }
  }

  std::size_t count_;
  std::vector<T> memory_;
  std::ptrdiff_t first_ = 0;
  std::vector<std::size_t> extents_;
  std::vector<std::ptrdiff_t> strides_;
  std::vector<std::size_t> places_;
};

inline std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

template <class T>
std::vector<T> values(int rank, std::size_t count, std::size_t first = 0) {
  std::vector<T> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(value<T>(rank, first + i));
  return made;
}
template <class T>
void append(std::vector<T>& all, const std::vector<T>& block) {
  all.insert(all.end(), block.begin(), block.end());
}

/// The fields of all ranks, each in another layout than that of the next rank.
template <class T>
struct fields : std::vector<field<T>> {
  fields(int ranks, std::size_t count, int kind) {
    for (int rank = 0; rank < ranks; ++rank) this->emplace_back(count, kind + rank, rank);
  }
  colls::strided_view<T> of(int rank) { return (*this)[index(rank)].view(); }
  template <class Comm>
  colls::strided_view<T> of(Comm& comm) {
    return of(comm.rank());
  }
};

template <class World>
class view_ranks : public transport_suite::ranks<World> {
 public:
  using transport_suite::ranks<World>::ranks;

  template <class Start>
  void run(const Start& start) {
    for (auto& call : this->start_all(start)) {
      const colls::failure why = this->outcome(call);
      CAPTURE(std::string(why.detail));
      CHECK(why.code == colls::errc{});
    }
  }
  template <class T>
  void expect(const fields<T>& got, int rank, const std::vector<T>& expected) {
    CAPTURE(rank);
    CHECK(got[index(rank)].elements() == expected);
    CHECK(got[index(rank)].gaps_are_untouched());
  }
};

#if !defined(SANITIZED)
/// Returns the greatest number of bytes that are allocated while `run` runs, beyond those before.
template <class Run>
std::size_t extra_memory(const Run& run) {
  const std::size_t before = bytes_in_use;
  most_bytes_in_use = before;
  run();
  return most_bytes_in_use - before;
}
#endif
