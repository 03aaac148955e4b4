// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The input of each collective, and the result that every rank must hold afterwards.

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

/// Returns how many of the elements are not equal to `value(i)`, bit for bit.
template <class T, class Value>
std::uint64_t count_differences(const T* data, std::size_t count, Value value) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const T expected = value(i);
    wrong += std::memcmp(data + i, &expected, sizeof(T)) != 0;
  }
  return wrong;
}

/// Elements in private memory of this process, or in memory that peers can access. device.hpp has
/// the specialization for device memory.
template <class Communicator, class T>
class elements {
 public:
  elements(Communicator& comm, bool registered) {
    if (!registered) return;
    if constexpr (requires { comm.template allocate<T>(1); }) {
      allocate_ = [&comm](std::size_t n) { return comm.template allocate<T>(n); };
    } else {
      throw std::invalid_argument("--registered 1: only colls supports it");
    }
  }
  void resize(std::size_t n) {
    if (n == count_) return;
    count_ = n;
    if (allocate_) {
      shared_ = {};
      shared_ = allocate_(n);
    } else {
      private_.resize(n);
    }
  }
  T* data() { return allocate_ ? shared_.data() : private_.data(); }
  const T* data() const { return allocate_ ? shared_.data() : private_.data(); }
  std::size_t size() const { return count_; }
  T* begin() { return data(); }
  T* end() { return data() + count_; }

  /// The argument of a call.
  elements& view() { return *this; }
  /// Sets element i to `value(i)`.
  template <class Value>
  void fill(Value value) {
    T* const out = data();
    for (std::size_t i = 0; i < count_; ++i) out[i] = value(i);
  }
  /// Returns how many of `count` elements from `offset` on differ from `value(i)`, where i counts
  /// from `offset`.
  template <class Value>
  std::uint64_t differ(std::size_t offset, std::size_t count, Value value) const {
    return count_differences(data() + offset, count, value);
  }

 private:
  std::function<colls::shared_buffer<T>(std::size_t)> allocate_;
  std::vector<T> private_;
  colls::shared_buffer<T> shared_;
  std::size_t count_ = 0;
};

/// The awaitable type of a call of the measured library.
template <class Communicator>
using call_of = decltype(std::declval<Communicator&>().barrier());

/// One collective on one rank. Its size is that of the whole vector, as in nccl-tests.
template <class Communicator>
class workload {
 public:
  virtual ~workload() = default;
  /// The size of the whole vector is a multiple of this.
  virtual std::uint64_t unit() const = 0;
  virtual void resize(std::uint64_t bytes) = 0;
  virtual void fill() = 0;
  virtual call_of<Communicator> start() = 0;
  virtual std::uint64_t wrong() const = 0;
  /// Bus bandwidth over algorithm bandwidth, as nccl-tests defines it.
  virtual double bus_factor() const = 0;
  /// The bytes of this rank's input plus those of its output.
  virtual std::uint64_t bytes_touched() const = 0;
};

template <class Communicator, class T>
class reduction : public workload<Communicator> {
 public:
  reduction(Communicator& comm, const options& opts, const colls::options& call)
      : comm_(comm),
        opts_(opts),
        sums_(opts.op == "plus"),
        call_(call),
        in_(comm, opts.registered),
        out_(comm, opts.registered) {}

  std::uint64_t unit() const override { return sizeof(T); }
  void resize(std::uint64_t bytes) override {
    in_.resize(bytes / sizeof(T));
    out_.resize(opts_.in_place ? 0 : in_.size());
  }
  void fill() override {
    const int rank = comm_.rank();
    in_.fill([rank](std::size_t i) { return static_cast<T>(part(rank, i)); });
    out_.fill([](std::size_t) { return static_cast<T>(-1.0F); });
  }
  std::uint64_t bytes_touched() const override {
    return (in_.size() + (opts_.in_place ? in_ : out_).size()) * sizeof(T);
  }

 protected:
  // Small integers, whose sums are exact in every type and order, for up to 18 ranks of bfloat16.
  static float part(int rank, std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 3) % 13 + 1);
  }
  /// Element i of the inputs of ranks 0 to `last`, reduced.
  T total(std::size_t i, int last) const {
    float all = part(0, i);
    for (int rank = 1; rank <= last; ++rank) {
      const float next = part(rank, i);
      all = sums_ ? all + next : std::max(all, next);
    }
    return static_cast<T>(all);
  }
  /// Returns how many result elements differ from the reduced vector, from its element `offset` on.
  std::uint64_t differ(std::size_t offset, int last) const {
    const elements<Communicator, T>& result = opts_.in_place ? in_ : out_;
    return result.differ(0, result.size(), [&](std::size_t i) { return total(offset + i, last); });
  }
  template <class Call>
  call_of<Communicator> with_op(Call call) {
    return sums_ ? call(colls::plus{}) : call(colls::maximum{});
  }

  Communicator& comm_;
  const options& opts_;
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
      return this->opts_.in_place
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
      return this->opts_.in_place
                 ? this->comm_.reduce(this->in_.view(), this->opts_.root, op, this->call_)
                 : this->comm_.reduce(this->in_.view(), this->out_.view(), this->opts_.root, op,
                                      this->call_);
    });
  }
  std::uint64_t wrong() const override {
    if (this->comm_.rank() != this->opts_.root) return 0;
    return this->differ(0, this->comm_.size() - 1);
  }
  double bus_factor() const override { return 1; }
  std::uint64_t bytes_touched() const override {
    const bool gets = this->comm_.rank() == this->opts_.root;
    return this->in_.size() * sizeof(T) * (gets ? 2 : 1);
  }
};

template <class Communicator, class T, colls::collective Coll>
class prefix final : public reduction<Communicator, T> {
 public:
  using reduction<Communicator, T>::reduction;
  call_of<Communicator> start() override {
    return this->with_op([&](auto op) {
      if constexpr (Coll == colls::collective::scan) {
        return this->comm_.scan(this->in_.view(), op, this->call_);
      } else {
        return this->comm_.exscan(this->in_.view(), op, this->call_);
      }
    });
  }
  std::uint64_t wrong() const override {
    const int last = this->comm_.rank() - (Coll == colls::collective::exscan ? 1 : 0);
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
    if (this->opts_.in_place)
      throw std::invalid_argument("reduce_scatter cannot be measured in place");
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

/// Collectives that only move bytes. The value of each byte depends on its rank and position.
template <class Communicator>
class movement : public workload<Communicator> {
 public:
  movement(Communicator& comm, const options& opts, const colls::options& call)
      : comm_(comm),
        opts_(opts),
        call_(call),
        in_(comm, opts.registered),
        out_(comm, opts.registered) {
    if (opts.in_place)
      throw std::invalid_argument("--in-place 1: only for collectives that reduce");
  }
  std::uint64_t unit() const override { return static_cast<std::uint64_t>(comm_.size()); }
  void fill() override {
    const int rank = comm_.rank();
    in_.fill([rank](std::size_t i) { return value(rank, i); });
    out_.fill([](std::size_t) { return static_cast<unsigned char>(0); });
  }
  std::uint64_t bytes_touched() const override { return in_.size() + out_.size(); }
  double bus_factor() const override { return 1.0 * (comm_.size() - 1) / comm_.size(); }

 protected:
  // Any eight consecutive bits of this number contain a 1, so a shift by any power of two changes
  // values.
  static unsigned char value(int rank, std::size_t i) {
    constexpr std::uint64_t golden = 0x9E3779B97F4A7C15;
    return static_cast<unsigned char>((i * golden >> 56) + static_cast<std::size_t>(rank) * 29 + 1);
  }
  bool is_root() const { return comm_.rank() == opts_.root; }
  std::size_t block(std::uint64_t bytes) const {
    return bytes / static_cast<std::size_t>(comm_.size());
  }
  /// Returns how many of `count` output bytes from `offset` on differ from the bytes of `rank` from
  /// `first` on.
  std::uint64_t differ(std::size_t offset, std::size_t count, int rank, std::size_t first) const {
    return out_.differ(offset, count, [=](std::size_t i) { return value(rank, first + i); });
  }

  Communicator& comm_;
  const options& opts_;
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
    const int root = this->opts_.root;
    this->out_.fill([=](std::size_t i) {
      return sends ? movement<Communicator>::value(root, i) : static_cast<unsigned char>(0);
    });
  }
  call_of<Communicator> start() override {
    return this->comm_.broadcast(this->out_.view(), this->opts_.root, this->call_);
  }
  std::uint64_t wrong() const override {
    return this->differ(0, this->out_.size(), this->opts_.root, 0);
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
    return this->comm_.gather(this->in_.view(), this->out_.view(), this->opts_.root, this->call_);
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
    return this->comm_.scatter(this->in_.view(), this->out_.view(), this->opts_.root, this->call_);
  }
  std::uint64_t wrong() const override {
    const std::size_t n = this->out_.size();
    return this->differ(0, n, this->opts_.root, n * static_cast<std::size_t>(this->comm_.rank()));
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
    const std::size_t first = n * static_cast<std::size_t>(this->comm_.rank());
    for (int rank = 0; rank < this->comm_.size(); ++rank) {
      wrong += this->differ(n * static_cast<std::size_t>(rank), n, rank, first);
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
std::unique_ptr<workload<Communicator>> make_reduction(Communicator& comm, const options& opts,
                                                       const colls::options& call) {
  using colls::collective;
  if (opts.collective == "all_reduce")
    return std::make_unique<all_reduce<Communicator, T>>(comm, opts, call);
  if (opts.collective == "reduce")
    return std::make_unique<reduce<Communicator, T>>(comm, opts, call);
  if (opts.collective == "reduce_scatter") {
    return std::make_unique<reduce_scatter<Communicator, T>>(comm, opts, call);
  }
  if (opts.collective == "scan") {
    return std::make_unique<prefix<Communicator, T, collective::scan>>(comm, opts, call);
  }
  if (opts.collective == "exscan") {
    return std::make_unique<prefix<Communicator, T, collective::exscan>>(comm, opts, call);
  }
  return nullptr;
}

template <class Communicator>
std::unique_ptr<workload<Communicator>> make_workload(Communicator& comm, const options& opts,
                                                      colls::options call = {}) {
  call.algorithm = opts.pinned();
  if (opts.root < 0 || opts.root >= comm.size()) {
    throw std::invalid_argument("--root is not in 0.." + std::to_string(comm.size() - 1));
  }
  std::unique_ptr<workload<Communicator>> work;
  if (opts.dtype == "float") work = make_reduction<Communicator, float>(comm, opts, call);
  if (opts.dtype == "double") work = make_reduction<Communicator, double>(comm, opts, call);
  if (opts.dtype == "int32") work = make_reduction<Communicator, std::int32_t>(comm, opts, call);
  if (opts.dtype == "bfloat16")
    work = make_reduction<Communicator, colls::bfloat16>(comm, opts, call);
  if (work) return work;
  if (opts.collective == "broadcast")
    return std::make_unique<broadcast<Communicator>>(comm, opts, call);
  if (opts.collective == "all_gather")
    return std::make_unique<all_gather<Communicator>>(comm, opts, call);
  if (opts.collective == "gather") return std::make_unique<gather<Communicator>>(comm, opts, call);
  if (opts.collective == "scatter")
    return std::make_unique<scatter<Communicator>>(comm, opts, call);
  if (opts.collective == "all_to_all")
    return std::make_unique<all_to_all<Communicator>>(comm, opts, call);
  if (opts.collective == "barrier")
    return std::make_unique<barrier<Communicator>>(comm, opts, call);
  throw std::invalid_argument("no collective is named " + opts.collective);
}

}  // namespace bench
