// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The calls of a scenario: a rank's input, its expected output, and the call on the communicator.

#include <colls/coroutine/sync_wait.hpp>

#include "../conformance/harness.hpp"
#include "scenario.hpp"

namespace sim {

using communicator = colls::simulated::communicator;
using conformance::matrix;
using conformance::memory;

inline std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

/// The elements and the operation of the conformance suite, by the scenario's name for them.
inline const conformance::element_and_op& details(element type) {
  return conformance::elements_and_ops()[static_cast<std::size_t>(type)];
}

/// One call of one rank: its arguments and its memory.
class call {
 public:
  /// `number` is the index of this call among the rank's calls; each call has different values. A
  /// phantom call has no memory.
  call(const scenario& setup, int rank, int number, bool phantom = false)
      : setup_(setup),
        rank_(rank),
        number_(number),
        data_(details(setup.elements)),
        parts_(setup.n, setup.ranks) {
    options_.algorithm = setup.call.algo;
    options_.segment = setup.segment;
    options_.radix = setup.radix;
    for (const fault& each : setup.plan.faults) {
      if (each.type == fault::kind::wrong_argument && each.rank == rank && number == 0)
        set_wrong(each.wrong_argument);
    }
    if (phantom) return;
    const auto shift = 4 * (static_cast<std::size_t>(rank + number) % 8);
    in_ = std::make_unique<memory>(in_size() * data_.size, shift);
    out_ = std::make_unique<memory>(out_size() * data_.size, (shift + 12) % 32);
    fill(in_->data(), in_first(), in_size());
    if (in_place()) std::memcpy(out_->data(), in_->data(), in_->size());
  }

  colls::operation<> start(communicator& comm) {
    if (!reduces(setup_.call.operation))
      return wrong_type_ ? moving<float>(comm) : moving<std::uint32_t>(comm);
    switch (setup_.elements) {
      case element::matrices:
        return wrong_type_ ? reducing<float>(comm, colls::plus{})
                           : reducing<matrix>(comm, conformance::matrix_product{});
      case element::floats:
        return wrong_type_ ? reducing<std::uint32_t>(comm, colls::plus{})
                           : reducing<float>(comm, colls::plus{});
      default:
        break;
    }
    if (wrong_op_) return reducing<std::uint32_t>(comm, colls::minimum{});
    return wrong_type_ ? reducing<float>(comm, colls::plus{})
                       : reducing<std::uint32_t>(comm, colls::plus{});
  }

  /// Says what is wrong with the rank's memory after a call that succeeded; empty if nothing is.
  std::string wrong() const {
    if (!in_->guards_are_intact() || !out_->guards_are_intact())
      return "wrote outside of its buffers";
    std::vector<std::byte> given(in_->size());
    fill(given.data(), in_first(), in_size());
    if (!std::equal(given.begin(), given.end(), in_->data())) return "wrote its input";
    const std::vector<std::byte> right = expected();
    for (std::size_t i = 0; i < right.size(); i += data_.size) {
      if (std::memcmp(out_->data() + i, right.data() + i, data_.size) == 0) continue;
      const bool sequential =
          data_.exact || !reduces(setup_.call.operation) || setup_.call.sequential;
      const float actual = conformance::read<float>(out_->data() + i);
      const float exact = conformance::read<float>(right.data() + i);
      if (!sequential && actual > exact * 0.99999f && actual < exact * 1.00001f) continue;
      return "element " + std::to_string(i / data_.size) + " of " +
             std::to_string(right.size() / data_.size) + " is wrong";
    }
    return {};
  }

  /// All memory that the call can write.
  std::vector<std::byte> contents() const {
    std::vector<std::byte> all(in_->data(), in_->data() + in_->size());
    all.insert(all.end(), out_->data(), out_->data() + out_->size());
    return all;
  }
  std::vector<std::byte> result() const { return {out_->data(), out_->data() + out_->size()}; }

 private:
  void set_wrong(fault::argument argument) {
    switch (argument) {
      case fault::argument::count:
        count_ = setup_.n + index(setup_.ranks);
        parts_ = colls::partition(count_, setup_.ranks);
        break;
      case fault::argument::root:
        root_shift_ = 1;
        break;
      case fault::argument::op:
        wrong_op_ = true;
        break;
      case fault::argument::type:
        wrong_type_ = true;
        break;
      case fault::argument::order:
        options_.order = colls::order::rank;
        break;
      case fault::argument::algorithm:
        for (const row& other : rows()) {
          if (other.operation == setup_.call.operation && other.algo != setup_.call.algo)
            options_.algorithm = other.algo;
        }
        break;
    }
  }

  int root() const { return (setup_.root + root_shift_) % setup_.ranks; }
  bool at_root() const { return rank_ == root(); }
  std::size_t n() const { return count_ != 0 ? count_ : setup_.n; }
  std::size_t share() const { return parts_.count(rank_); }
  // Whether the call has one buffer for input and output.
  bool in_place() const {
    switch (setup_.call.operation) {
      case collective::broadcast:
        return at_root();
      case collective::scan:
      case collective::exscan:
        return true;
      case collective::all_reduce:
        return setup_.in_place;
      case collective::reduce:
        return setup_.in_place;
      default:
        return false;
    }
  }

  std::size_t in_size() const {
    switch (setup_.call.operation) {
      case collective::barrier:
        return 0;
      case collective::broadcast:
        return at_root() ? n() : 0;
      case collective::all_gather:
      case collective::gather:
        return share();
      case collective::scatter:
        return at_root() ? n() : 0;
      default:
        return n();
    }
  }
  std::size_t in_first() const {
    const bool gathers = setup_.call.operation == collective::all_gather ||
                         setup_.call.operation == collective::gather;
    return gathers ? parts_.offset(rank_) : 0;
  }
  std::size_t out_size() const {
    switch (setup_.call.operation) {
      case collective::barrier:
        return 0;
      case collective::gather:
        return at_root() ? n() : 0;
      case collective::reduce:
        return at_root() || in_place() ? n() : 0;
      case collective::scatter:
      case collective::reduce_scatter:
        return share();
      case collective::all_to_all:
        return share() * index(setup_.ranks);
      default:
        return n();
    }
  }

  int values_of(int rank) const { return rank + 1000 * number_; }
  void fill(std::byte* memory, std::size_t first, std::size_t count) const {
    conformance::fill(data_, memory, values_of(rank_), first, count);
  }
  std::vector<std::byte> sum(int last, std::size_t first, std::size_t count) const {
    return conformance::folded(data_, values_of(0), values_of(last), first, count);
  }
  // `count` elements of the input of `rank`, from element `first` on.
  std::vector<std::byte> given_by(int rank, std::size_t first, std::size_t count) const {
    return conformance::folded(data_, values_of(rank), values_of(rank) + 1, first, count);
  }

  std::vector<std::byte> expected() const {
    switch (setup_.call.operation) {
      case collective::broadcast:
        return given_by(root(), 0, n());
      case collective::all_reduce:
        return sum(setup_.ranks, 0, n());
      case collective::reduce:
        if (at_root()) return sum(setup_.ranks, 0, n());
        return given_by(rank_, 0, out_size());
      case collective::reduce_scatter:
        return sum(setup_.ranks, parts_.offset(rank_), share());
      case collective::scan:
        return sum(rank_ + 1, 0, n());
      case collective::exscan:
        return rank_ > 0 ? sum(rank_, 0, n()) : given_by(0, 0, n());
      case collective::scatter:
        return given_by(root(), parts_.offset(rank_), share());
      case collective::all_gather:
      case collective::gather: {
        std::vector<std::byte> all;
        for (int rank = 0; rank < setup_.ranks && out_size() != 0; ++rank) {
          append(all, given_by(rank, parts_.offset(rank), parts_.count(rank)));
        }
        return all;
      }
      case collective::all_to_all: {
        std::vector<std::byte> all;
        for (int rank = 0; rank < setup_.ranks; ++rank) {
          append(all, given_by(rank, parts_.offset(rank_), share()));
        }
        return all;
      }
      default:
        return {};
    }
  }
  static void append(std::vector<std::byte>& all, const std::vector<std::byte>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }

  // A phantom's memory is never accessed.
  template <class T>
  std::span<T> input() const {
    if (in_ == nullptr) return {reinterpret_cast<T*>(std::uintptr_t{1} << 44), in_size()};
    return {reinterpret_cast<T*>(in_->data()), in_size()};
  }
  template <class T>
  std::span<T> output() const {
    if (out_ == nullptr) return {reinterpret_cast<T*>(std::uintptr_t{1} << 45), out_size()};
    return {reinterpret_cast<T*>(out_->data()), out_size()};
  }
  std::vector<std::size_t> counts() const {
    std::vector<std::size_t> all;
    for (int rank = 0; rank < setup_.ranks; ++rank) all.push_back(parts_.count(rank));
    return all;
  }
  bool equal_shares() const { return n() % index(setup_.ranks) == 0; }

  template <class T, class Op>
  colls::operation<> reducing(communicator& comm, Op op) {
    const std::span<T> in = input<T>();
    const std::span<T> out = output<T>();
    switch (setup_.call.operation) {
      case collective::all_reduce:
        return in_place() ? comm.all_reduce(out, op, options_)
                          : comm.all_reduce(in, out, op, options_);
      case collective::reduce:
        return in_place() ? comm.reduce(out, root(), op, options_)
                          : comm.reduce(in, out, root(), op, options_);
      case collective::reduce_scatter:
        return equal_shares() ? comm.reduce_scatter(in, out, op, options_)
                              : comm.reduce_scatter_v(in, out, counts(), op, options_);
      case collective::scan:
        return comm.scan(out, op, options_);
      default:
        return comm.exscan(out, op, options_);
    }
  }

  template <class T>
  colls::operation<> moving(communicator& comm) {
    const std::span<T> in = input<T>();
    const std::span<T> out = output<T>();
    switch (setup_.call.operation) {
      case collective::barrier:
        return comm.barrier(options_);
      case collective::broadcast:
        return comm.broadcast(out, root(), options_);
      case collective::all_gather:
        return equal_shares() ? comm.all_gather(in, out, options_)
                              : comm.all_gather_v(in, out, counts(), options_);
      case collective::gather:
        return equal_shares() ? comm.gather(in, out, root(), options_)
                              : comm.gather_v(in, out, counts(), root(), options_);
      case collective::scatter:
        return equal_shares() ? comm.scatter(in, out, root(), options_)
                              : comm.scatter_v(in, counts(), out, root(), options_);
      default: {
        if (equal_shares()) return comm.all_to_all(in, out, options_);
        const std::vector<std::size_t> out_counts(index(setup_.ranks), share());
        return comm.all_to_all_v(in, counts(), out, out_counts, options_);
      }
    }
  }

  const scenario& setup_;
  int rank_;
  int number_;
  const conformance::element_and_op& data_;
  colls::partition parts_;
  colls::options options_;
  std::size_t count_ = 0;
  int root_shift_ = 0;
  bool wrong_op_ = false;
  bool wrong_type_ = false;
  std::unique_ptr<memory> in_;
  std::unique_ptr<memory> out_;
};

}  // namespace sim
