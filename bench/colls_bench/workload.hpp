// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What each collective is given, and what every rank must hold afterwards.

#include "options.hpp"

#include <colls/communicator.hpp>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

/// Elements whose i-th is not `value(i)`, bit for bit.
template <class T, class Value>
std::uint64_t differing(const T* found, std::size_t count, Value value) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T expected = value(i);
    wrong += std::memcmp(found + i, &expected, sizeof(T)) != 0;
  }
  return wrong;
}

/// Elements in this process's own memory, or in what peers may work in; those of a device are in
/// device.hpp.
template <class Communicator, class T>
class elements {
 public:
  elements(Communicator& comm, bool registered) {
    if (!registered) return;
    if constexpr (requires { comm.template allocate<T>(1); }) {
      allocate_ = [&comm](std::size_t n) { return comm.template allocate<T>(n); };
    } else {
      throw std::invalid_argument("--registered 1 is for colls");
    }
  }
  void resize(std::size_t n) {
    if (n == count_) return;
    count_ = n;
    if (allocate_) {
      lent_ = {};
      lent_ = allocate_(n);
    } else {
      own_.resize(n);
    }
  }
  T* data() { return allocate_ ? lent_.data() : own_.data(); }
  const T* data() const { return allocate_ ? lent_.data() : own_.data(); }
  std::size_t size() const { return count_; }
  T* begin() { return data(); }
  T* end() { return data() + count_; }

  /// What a call is given.
  elements& view() { return *this; }
  /// Element i becomes `value(i)`.
  template <class Value>
  void fill(Value value) {
    T* const to = data();
    for (std::size_t i = 0; i < count_; ++i) to[i] = value(i);
  }
  /// Those of `count` elements from `at` on whose i-th is not `value(i)`, bit for bit.
  template <class Value>
  std::uint64_t differ(std::size_t at, std::size_t count, Value value) const {
    return differing(data() + at, count, value);
  }

 private:
  std::function<colls::shared_buffer<T>(std::size_t)> allocate_;
  std::vector<T> own_;
  colls::shared_buffer<T> lent_;
  std::size_t count_ = 0;
};

/// What a call of the library that is measured gives to await.
template <class Communicator>
using call_of = decltype(std::declval<Communicator&>().barrier());

/// One collective on one rank. `bytes` is the whole vector, as in nccl-tests.
template <class Communicator>
class workload {
 public:
  virtual ~workload() = default;
  /// The whole vector is a multiple of this.
  virtual std::uint64_t unit() const = 0;
  virtual void resize(std::uint64_t bytes) = 0;
  virtual void fill() = 0;
  virtual call_of<Communicator> start() = 0;
  virtual std::uint64_t wrong() const = 0;
  /// Bus bandwidth over algorithm bandwidth, as nccl-tests defines it.
  virtual double bus_factor() const = 0;
  /// Bytes that this rank gives to be read, and those that it is to get.
  virtual std::uint64_t touched() const = 0;
};

template <class Communicator, class T>
class reduction : public workload<Communicator> {
 public:
  reduction(Communicator& comm, const options& how, const colls::options& call)
      : comm_(comm),
        how_(how),
        sums_(how.op == "plus"),
        call_(call),
        in_(comm, how.registered),
        out_(comm, how.registered) {}

  std::uint64_t unit() const override { return sizeof(T); }
  void resize(std::uint64_t bytes) override {
    in_.resize(bytes / sizeof(T));
    out_.resize(how_.in_place ? 0 : in_.size());
  }
  void fill() override {
    const int mine = comm_.rank();
    in_.fill([mine](std::size_t i) { return static_cast<T>(part(mine, i)); });
    out_.fill([](std::size_t) { return static_cast<T>(-1.0F); });
  }
  std::uint64_t touched() const override {
    return (in_.size() + (how_.in_place ? in_ : out_).size()) * sizeof(T);
  }

 protected:
  // Small whole numbers: exact in every type and order, for up to 18 ranks of bfloat16.
  static float part(int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 13 + 1);
  }
  /// What the ranks up to `last` make of element i.
  T total(std::size_t i, int last) const {
    float all = part(0, i);
    for (int rank = 1; rank <= last; ++rank) {
      const float mine = part(rank, i);
      all = sums_ ? all + mine : std::max(all, mine);
    }
    return static_cast<T>(all);
  }
  /// Elements that differ from those of the whole vector beginning at `offset`.
  std::uint64_t differ(std::size_t offset, int last) const {
    const elements<Communicator, T>& found = how_.in_place ? in_ : out_;
    return found.differ(0, found.size(), [&](std::size_t i) { return total(offset + i, last); });
  }
  template <class Call>
  call_of<Communicator> with_op(Call call) {
    return sums_ ? call(colls::plus{}) : call(colls::maximum{});
  }

  Communicator& comm_;
  const options& how_;
  const bool sums_;
  colls::options call_;
  elements<Communicator, T> in_;
  elements<Communicator, T> out_;
};

template <class Communicator, class T>
class all_reduce final : public reduction<Communicator, T> {
 public:
  using reduction<Communicator, T>::reduction;
  call_of<Communicator> start() override {
    return this->with_op([&](auto op) {
      return this->how_.in_place
                 ? this->comm_.all_reduce(this->in_.view(), op, this->call_)
                 : this->comm_.all_reduce(this->in_.view(), this->out_.view(), op, this->call_);
    });
  }
  std::uint64_t wrong() const override { return this->differ(0, this->comm_.size() - 1); }
  double bus_factor() const override { return 2.0 * (this->comm_.size() - 1) / this->comm_.size(); }
};

template <class Communicator, class T>
class reduce final : public reduction<Communicator, T> {
 public:
  using reduction<Communicator, T>::reduction;
  call_of<Communicator> start() override {
    return this->with_op([&](auto op) {
      return this->how_.in_place
                 ? this->comm_.reduce(this->in_.view(), this->how_.root, op, this->call_)
                 : this->comm_.reduce(this->in_.view(), this->out_.view(), this->how_.root, op,
                                      this->call_);
    });
  }
  std::uint64_t wrong() const override {
    if (this->comm_.rank() != this->how_.root) return 0;
    return this->differ(0, this->comm_.size() - 1);
  }
  double bus_factor() const override { return 1; }
  std::uint64_t touched() const override {
    const bool gets = this->comm_.rank() == this->how_.root;
    return this->in_.size() * sizeof(T) * (gets ? 2 : 1);
  }
};

template <class Communicator, class T, colls::collective What>
class prefix final : public reduction<Communicator, T> {
 public:
  using reduction<Communicator, T>::reduction;
  call_of<Communicator> start() override {
    return this->with_op([&](auto op) {
      if constexpr (What == colls::collective::scan) {
        return this->comm_.scan(this->in_.view(), op, this->call_);
      } else {
        return this->comm_.exscan(this->in_.view(), op, this->call_);
      }
    });
  }
  std::uint64_t wrong() const override {
    const int last = this->comm_.rank() - (What == colls::collective::exscan ? 1 : 0);
    return last < 0 ? 0 : this->differ(0, last);
  }
  double bus_factor() const override { return 1; }
};

template <class Communicator, class T>
class reduce_scatter final : public reduction<Communicator, T> {
 public:
  using reduction<Communicator, T>::reduction;
  std::uint64_t unit() const override {
    return sizeof(T) * static_cast<std::uint64_t>(this->comm_.size());
  }
  void resize(std::uint64_t bytes) override {
    if (this->how_.in_place) throw std::invalid_argument("reduce_scatter has no form in place");
    this->in_.resize(bytes / sizeof(T));
    this->out_.resize(this->in_.size() / static_cast<std::size_t>(this->comm_.size()));
  }
  call_of<Communicator> start() override {
    return this->with_op([&](auto op) {
      return this->comm_.reduce_scatter(this->in_.view(), this->out_.view(), op, this->call_);
    });
  }
  std::uint64_t wrong() const override {
    const std::size_t first = this->out_.size() * static_cast<std::size_t>(this->comm_.rank());
    return this->differ(first, this->comm_.size() - 1);
  }
  double bus_factor() const override { return 1.0 * (this->comm_.size() - 1) / this->comm_.size(); }
};

/// Collectives that only move bytes: every byte's value tells whose it is and where it lay.
template <class Communicator>
class movement : public workload<Communicator> {
 public:
  movement(Communicator& comm, const options& how, const colls::options& call)
      : comm_(comm), how_(how), call_(call), in_(comm, how.registered), out_(comm, how.registered) {
    if (how.in_place) throw std::invalid_argument("--in-place 1 is for collectives that reduce");
  }
  std::uint64_t unit() const override { return static_cast<std::uint64_t>(comm_.size()); }
  void fill() override {
    const int mine = comm_.rank();
    in_.fill([mine](std::size_t i) { return value(mine, i); });
    out_.fill([](std::size_t) { return static_cast<unsigned char>(0); });
  }
  std::uint64_t touched() const override { return in_.size() + out_.size(); }
  double bus_factor() const override { return 1.0 * (comm_.size() - 1) / comm_.size(); }

 protected:
  // Of any eight bits in a row of this number one is set: no shift by a power of two goes unseen.
  static unsigned char value(int rank, std::size_t i) {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;
    return static_cast<unsigned char>((i * golden >> 56) + static_cast<std::size_t>(rank) * 29 + 1);
  }
  bool is_root() const { return comm_.rank() == how_.root; }
  std::size_t block(std::uint64_t bytes) const {
    return bytes / static_cast<std::size_t>(comm_.size());
  }
  /// Bytes of `out` from `at` on that are not those of `rank` from `from` on.
  std::uint64_t differ(std::size_t at, std::size_t count, int rank, std::size_t from) const {
    return out_.differ(at, count, [=](std::size_t i) { return value(rank, from + i); });
  }

  Communicator& comm_;
  const options& how_;
  colls::options call_;
  elements<Communicator, unsigned char> in_;
  elements<Communicator, unsigned char> out_;
};

template <class Communicator>
class broadcast final : public movement<Communicator> {
 public:
  using movement<Communicator>::movement;
  void resize(std::uint64_t bytes) override { this->out_.resize(bytes); }
  void fill() override {
    const bool sends = this->is_root();
    const int root = this->how_.root;
    this->out_.fill([=](std::size_t i) {
      return sends ? movement<Communicator>::value(root, i) : static_cast<unsigned char>(0);
    });
  }
  call_of<Communicator> start() override {
    return this->comm_.broadcast(this->out_.view(), this->how_.root, this->call_);
  }
  std::uint64_t wrong() const override {
    return this->differ(0, this->out_.size(), this->how_.root, 0);
  }
  double bus_factor() const override { return 1; }
};

template <class Communicator>
class all_gather final : public movement<Communicator> {
 public:
  using movement<Communicator>::movement;
  void resize(std::uint64_t bytes) override {
    this->in_.resize(this->block(bytes));
    this->out_.resize(bytes);
  }
  call_of<Communicator> start() override {
    return this->comm_.all_gather(this->in_.view(), this->out_.view(), this->call_);
  }
  std::uint64_t wrong() const override {
    std::uint64_t wrong = 0;
    const std::size_t n = this->in_.size();
    for (int rank = 0; rank < this->comm_.size(); ++rank) {
      wrong += this->differ(n * static_cast<std::size_t>(rank), n, rank, 0);
    }
    return wrong;
  }
};

template <class Communicator>
class gather final : public movement<Communicator> {
 public:
  using movement<Communicator>::movement;
  void resize(std::uint64_t bytes) override {
    this->in_.resize(this->block(bytes));
    this->out_.resize(this->is_root() ? bytes : 0);
  }
  call_of<Communicator> start() override {
    return this->comm_.gather(this->in_.view(), this->out_.view(), this->how_.root, this->call_);
  }
  std::uint64_t wrong() const override {
    std::uint64_t wrong = 0;
    const std::size_t n = this->in_.size();
    for (int rank = 0; this->is_root() && rank < this->comm_.size(); ++rank) {
      wrong += this->differ(n * static_cast<std::size_t>(rank), n, rank, 0);
    }
    return wrong;
  }
};

template <class Communicator>
class scatter final : public movement<Communicator> {
 public:
  using movement<Communicator>::movement;
  void resize(std::uint64_t bytes) override {
    this->in_.resize(this->is_root() ? bytes : 0);
    this->out_.resize(this->block(bytes));
  }
  call_of<Communicator> start() override {
    return this->comm_.scatter(this->in_.view(), this->out_.view(), this->how_.root, this->call_);
  }
  std::uint64_t wrong() const override {
    const std::size_t n = this->out_.size();
    return this->differ(0, n, this->how_.root, n * static_cast<std::size_t>(this->comm_.rank()));
  }
};

template <class Communicator>
class all_to_all final : public movement<Communicator> {
 public:
  using movement<Communicator>::movement;
  void resize(std::uint64_t bytes) override {
    this->in_.resize(bytes);
    this->out_.resize(bytes);
  }
  call_of<Communicator> start() override {
    return this->comm_.all_to_all(this->in_.view(), this->out_.view(), this->call_);
  }
  std::uint64_t wrong() const override {
    std::uint64_t wrong = 0;
    const std::size_t n = this->block(this->out_.size());
    const std::size_t mine = n * static_cast<std::size_t>(this->comm_.rank());
    for (int rank = 0; rank < this->comm_.size(); ++rank) {
      wrong += this->differ(n * static_cast<std::size_t>(rank), n, rank, mine);
    }
    return wrong;
  }
};

template <class Communicator>
class barrier final : public movement<Communicator> {
 public:
  using movement<Communicator>::movement;
  std::uint64_t unit() const override { return 1; }
  void resize(std::uint64_t) override {}
  call_of<Communicator> start() override { return this->comm_.barrier(this->call_); }
  std::uint64_t wrong() const override { return 0; }
};

template <class Communicator, class T>
std::unique_ptr<workload<Communicator>> reducing(Communicator& comm, const options& how,
                                                 const colls::options& call) {
  using colls::collective;
  if (how.collective == "all_reduce")
    return std::make_unique<all_reduce<Communicator, T>>(comm, how, call);
  if (how.collective == "reduce") return std::make_unique<reduce<Communicator, T>>(comm, how, call);
  if (how.collective == "reduce_scatter") {
    return std::make_unique<reduce_scatter<Communicator, T>>(comm, how, call);
  }
  if (how.collective == "scan") {
    return std::make_unique<prefix<Communicator, T, collective::scan>>(comm, how, call);
  }
  if (how.collective == "exscan") {
    return std::make_unique<prefix<Communicator, T, collective::exscan>>(comm, how, call);
  }
  return nullptr;
}

template <class Communicator>
std::unique_ptr<workload<Communicator>> make_workload(Communicator& comm, const options& how,
                                                      colls::options call = {}) {
  call.algorithm = how.pinned();
  if (how.root < 0 || how.root >= comm.size()) {
    throw std::invalid_argument("--root is not in 0.." + std::to_string(comm.size() - 1));
  }
  std::unique_ptr<workload<Communicator>> made;
  if (how.dtype == "float") made = reducing<Communicator, float>(comm, how, call);
  if (how.dtype == "double") made = reducing<Communicator, double>(comm, how, call);
  if (how.dtype == "int32") made = reducing<Communicator, std::int32_t>(comm, how, call);
  if (how.dtype == "bfloat16") made = reducing<Communicator, colls::bfloat16>(comm, how, call);
  if (made) return made;
  if (how.collective == "broadcast")
    return std::make_unique<broadcast<Communicator>>(comm, how, call);
  if (how.collective == "all_gather")
    return std::make_unique<all_gather<Communicator>>(comm, how, call);
  if (how.collective == "gather") return std::make_unique<gather<Communicator>>(comm, how, call);
  if (how.collective == "scatter") return std::make_unique<scatter<Communicator>>(comm, how, call);
  if (how.collective == "all_to_all")
    return std::make_unique<all_to_all<Communicator>>(comm, how, call);
  if (how.collective == "barrier") return std::make_unique<barrier<Communicator>>(comm, how, call);
  throw std::invalid_argument("no collective is named " + how.collective);
}

}  // namespace bench
