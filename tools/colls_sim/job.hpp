// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The input of each collective on every rank, and the result that every rank must hold afterwards.

#include "options.hpp"

#include <colls/simulated.hpp>

#include <memory>
#include <vector>

namespace sim {

using communicator = colls::simulated::communicator;

/// One collective on all ranks.
class job {
 public:
  virtual ~job() = default;
  virtual colls::operation<> start(communicator& comm) = 0;
  /// Returns whether all ranks hold the right result.
  virtual bool is_correct() const = 0;
  /// Returns which element of the whole vector lies at address `data` of `rank`, or -1.
  virtual std::int64_t element_at(int rank, const std::byte* data) const = 0;
};

/// A collective on a vector of n elements. Where ranks have shares of it, these are as equal as
/// possible.
template <class T>
class typed_job final : public job {
 public:
  typed_job(const options& opts, std::uint64_t n)
      : operation_(opts.operation()),
        ranks_(opts.ranks),
        n_(n),
        root_(opts.root),
        phantom_(opts.is_phantom()),
        shares_(n, opts.ranks) {
    call_.algorithm = opts.pinned_algorithm();
    call_.segment = opts.segment;
    call_.radix = opts.radix;
    if (n % index(ranks_) != 0) {
      for (int rank = 0; rank < ranks_; ++rank) counts_.push_back(shares_.count(rank));
    }
    for (int rank = 0; rank < ranks_ && !phantom_; ++rank) {
      in_.emplace_back(in_size(rank));
      for (std::size_t i = 0; i < in_.back().size(); ++i) {
        in_.back()[i] = input(rank, in_offset(rank) + i);
      }
      out_.emplace_back(out_size(rank), T(-1.0F));
    }
  }

  colls::operation<> start(communicator& comm) override {
    using colls::collective;
    const int rank = comm.rank();
    const std::span<T> in(in_data(rank), in_size(rank));
    const std::span<T> out(out_data(rank), out_size(rank));
    const bool equal = counts_.empty();
    switch (operation_) {
      case collective::barrier:
        return comm.barrier(call_);
      case collective::broadcast:
        return comm.broadcast(in, root_, call_);
      case collective::all_reduce:
        return comm.all_reduce(in, call_);
      case collective::reduce:
        return comm.reduce(in, root_, call_);
      case collective::scan:
        return comm.scan(in, call_);
      case collective::exscan:
        return comm.exscan(in, call_);
      case collective::reduce_scatter:
        return equal ? comm.reduce_scatter(in, out, call_)
                     : comm.reduce_scatter_v(in, out, counts_, call_);
      case collective::all_gather:
        return equal ? comm.all_gather(in, out, call_) : comm.all_gather_v(in, out, counts_, call_);
      case collective::gather:
        return equal ? comm.gather(in, out, root_, call_)
                     : comm.gather_v(in, out, counts_, root_, call_);
      case collective::scatter:
        return equal ? comm.scatter(in, out, root_, call_)
                     : comm.scatter_v(in, counts_, out, root_, call_);
      case collective::all_to_all: {
        if (equal) return comm.all_to_all(in, out, call_);
        const std::vector<std::size_t> receive_counts(index(ranks_), shares_.count(rank));
        return comm.all_to_all_v(in, counts_, out, receive_counts, call_);
      }
      default:
        throw refusal("that collective is not simulated");
    }
  }

  bool is_correct() const override {
    if (operation_ == colls::collective::scan || operation_ == colls::collective::exscan) {
      return is_scan_correct();
    }
    // If ranks hold sums, the sum over all ranks is computed once.
    const bool sums = operation_ == colls::collective::all_reduce ||
                      operation_ == colls::collective::reduce ||
                      operation_ == colls::collective::reduce_scatter;
    std::vector<T> total;
    if (sums) total = sum_of_inputs(ranks_ - 1);
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<T>& held = has_output(rank) ? out_[index(rank)] : in_[index(rank)];
      for (std::size_t i = 0; i < held.size(); ++i) {
        if (!(held[i] == expected(rank, i, total))) return false;
      }
    }
    return true;
  }

  std::int64_t element_at(int rank, const std::byte* data) const override {
    const auto within = [&](const T* start, std::size_t size) -> std::int64_t {
      const auto offset =
          reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(start);
      return offset < size * sizeof(T) ? static_cast<std::int64_t>(offset / sizeof(T)) : -1;
    };
    const std::int64_t in = within(in_data(rank), in_size(rank));
    if (in >= 0) return in + static_cast<std::int64_t>(in_offset(rank));
    const std::int64_t out = within(out_data(rank), out_size(rank));
    return out < 0 ? -1 : out + static_cast<std::int64_t>(out_offset(rank));
  }

 private:
  using collective = colls::collective;
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  std::size_t share(int rank) const { return shares_.count(rank); }
  bool is_root(int rank) const { return rank == root_; }
  // Elements of a rank's input: the whole vector, its share of it, or none.
  std::size_t in_size(int rank) const {
    switch (operation_) {
      case collective::all_gather:
      case collective::gather:
        return share(rank);
      case collective::scatter:
        return is_root(rank) ? n_ : 0;
      default:
        return n_;
    }
  }
  std::size_t in_offset(int rank) const {
    const bool gathers = operation_ == collective::all_gather || operation_ == collective::gather;
    return gathers ? shares_.offset(rank) : 0;
  }
  // Elements of a rank's output; 0 if the operation is in place.
  std::size_t out_size(int rank) const {
    switch (operation_) {
      case collective::all_gather:
        return n_;
      case collective::gather:
        return is_root(rank) ? n_ : 0;
      case collective::scatter:
      case collective::reduce_scatter:
        return share(rank);
      case collective::all_to_all:
        return share(rank) * index(ranks_);
      default:
        return 0;
    }
  }
  bool has_output(int rank) const {
    switch (operation_) {
      case collective::all_gather:
      case collective::scatter:
      case collective::reduce_scatter:
      case collective::all_to_all:
        return true;
      default:
        return operation_ == collective::gather && is_root(rank);
    }
  }
  std::size_t out_offset(int rank) const {
    const bool scatters =
        operation_ == collective::scatter || operation_ == collective::reduce_scatter;
    return scatters ? shares_.offset(rank) : 0;
  }

  // Phantom buffers have equal addresses on every rank, and are never accessed.
  T* in_data(int rank) const {
    return phantom_ ? reinterpret_cast<T*>(std::uintptr_t{1} << 44)
                    : const_cast<T*>(in_[index(rank)].data());
  }
  T* out_data(int rank) const {
    return phantom_ ? reinterpret_cast<T*>(std::uintptr_t{1} << 45)
                    : const_cast<T*>(out_[index(rank)].data());
  }

  // Small integers, whose sums are exact in every order.
  static T input(int rank, std::size_t i) {
    return static_cast<T>(static_cast<float>((i * 7 + index(rank) * 3 + i / 13) % 13 + 1));
  }
  std::vector<T> sum_of_inputs(int last) const {
    std::vector<double> sum(n_);
    for (int rank = 0; rank <= last; ++rank) {
      for (std::size_t i = 0; i < n_; ++i) sum[i] += static_cast<double>(to_float(input(rank, i)));
    }
    std::vector<T> total;
    for (const double value : sum) total.push_back(static_cast<T>(static_cast<float>(value)));
    return total;
  }
  static float to_float(T value) { return static_cast<float>(value); }

  T expected(int rank, std::size_t i, const std::vector<T>& total) const {
    switch (operation_) {
      case collective::all_reduce:
        return total[i];
      case collective::reduce:
        return is_root(rank) ? total[i] : input(rank, i);
      case collective::reduce_scatter:
        return total[shares_.offset(rank) + i];
      case collective::broadcast:
        return input(root_, i);
      case collective::all_gather:
        return input(owner_of(i), i);
      case collective::gather:
        return is_root(rank) ? input(owner_of(i), i) : input(rank, shares_.offset(rank) + i);
      case collective::scatter:
        return input(root_, shares_.offset(rank) + i);
      case collective::all_to_all: {
        const std::size_t block = share(rank);
        return input(static_cast<int>(i / block), shares_.offset(rank) + i % block);
      }
      default:
        return input(rank, i);
    }
  }
  // The rank whose share contains element i.
  int owner_of(std::size_t i) const {
    int low = 0;
    for (int high = ranks_; high - low > 1;) {
      const int middle = low + (high - low) / 2;
      (shares_.offset(middle) <= i ? low : high) = middle;
    }
    return low;
  }

  bool is_scan_correct() const {
    std::vector<double> sum(n_);
    const bool exclusive = operation_ == collective::exscan;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (std::size_t i = 0; i < n_; ++i) {
        const double lower = sum[i];
        sum[i] += static_cast<double>(to_float(input(rank, i)));
        const T right = exclusive && rank == 0
                            ? input(0, i)
                            : static_cast<T>(static_cast<float>(exclusive ? lower : sum[i]));
        if (!(in_[index(rank)][i] == right)) return false;
      }
    }
    return true;
  }

  collective operation_;
  int ranks_;
  std::size_t n_;
  int root_;
  bool phantom_;
  colls::partition shares_;
  colls::options call_;
  std::vector<std::size_t> counts_;  // empty if the shares are equal
  std::vector<std::vector<T>> in_;
  std::vector<std::vector<T>> out_;
};

inline std::size_t size_of(const std::string& dtype) {
  return dtype == "double" ? 8 : dtype == "bfloat16" ? 2 : 4;
}

inline std::unique_ptr<job> make_job(const options& opts) {
  const std::uint64_t n = opts.elements(size_of(opts.dtype));
  if (opts.dtype == "double") return std::make_unique<typed_job<double>>(opts, n);
  if (opts.dtype == "int32") return std::make_unique<typed_job<std::int32_t>>(opts, n);
  if (opts.dtype == "bfloat16") return std::make_unique<typed_job<colls::bfloat16>>(opts, n);
  return std::make_unique<typed_job<float>>(opts, n);
}

}  // namespace sim
