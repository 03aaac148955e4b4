// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What each collective is given on every rank, and what must be there afterwards.

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
  /// Whether all ranks hold what they should.
  virtual bool is_right() const = 0;
  /// Of `data`, an address on `rank`: the first element of the whole vector there, or -1.
  virtual std::int64_t element_at(int rank, const std::byte* data) const = 0;
};

/// A whole vector of n elements, cut as evenly as possible where ranks have shares of it.
template <class T>
class typed_job final : public job {
 public:
  typed_job(const options& how, std::uint64_t n)
      : what_(how.what()),
        ranks_(how.ranks),
        n_(n),
        root_(how.root),
        phantom_(how.is_phantom()),
        parts_(n, how.ranks) {
    call_.algorithm = how.how();
    call_.segment = how.segment;
    call_.radix = how.radix;
    if (n % index(ranks_) != 0) {
      for (int rank = 0; rank < ranks_; ++rank) counts_.push_back(parts_.count(rank));
    }
    for (int rank = 0; rank < ranks_ && !phantom_; ++rank) {
      in_.emplace_back(in_size(rank));
      for (std::size_t i = 0; i < in_.back().size(); ++i) {
        in_.back()[i] = part(rank, in_offset(rank) + i);
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
    switch (what_) {
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
        const std::vector<std::size_t> mine(index(ranks_), parts_.count(rank));
        return comm.all_to_all_v(in, counts_, out, mine, call_);
      }
      default:
        throw refusal("that collective is not simulated");
    }
  }

  bool is_right() const override {
    if (what_ == colls::collective::scan || what_ == colls::collective::exscan)
      return scans_right();
    // Where ranks hold sums, one sum over all ranks serves all of them.
    const bool sums = what_ == colls::collective::all_reduce ||
                      what_ == colls::collective::reduce ||
                      what_ == colls::collective::reduce_scatter;
    std::vector<T> total;
    if (sums) total = summed(ranks_ - 1);
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::vector<T>& held = gets(rank) ? out_[index(rank)] : in_[index(rank)];
      for (std::size_t i = 0; i < held.size(); ++i) {
        if (!(held[i] == wanted(rank, i, total))) return false;
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

  std::size_t share(int rank) const { return parts_.count(rank); }
  bool is_root(int rank) const { return rank == root_; }
  // What a rank brings: the whole vector, its share of it, or nothing.
  std::size_t in_size(int rank) const {
    switch (what_) {
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
    const bool gathers = what_ == collective::all_gather || what_ == collective::gather;
    return gathers ? parts_.offset(rank) : 0;
  }
  // What it gets besides, where that is not in place.
  std::size_t out_size(int rank) const {
    switch (what_) {
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
  bool gets(int rank) const {
    switch (what_) {
      case collective::all_gather:
      case collective::scatter:
      case collective::reduce_scatter:
      case collective::all_to_all:
        return true;
      default:
        return what_ == collective::gather && is_root(rank);
    }
  }
  std::size_t out_offset(int rank) const {
    const bool scatters = what_ == collective::scatter || what_ == collective::reduce_scatter;
    return scatters ? parts_.offset(rank) : 0;
  }

  // Phantom buffers have addresses that nothing looks at, the same on every rank.
  T* in_data(int rank) const {
    return phantom_ ? reinterpret_cast<T*>(std::uintptr_t{1} << 44)
                    : const_cast<T*>(in_[index(rank)].data());
  }
  T* out_data(int rank) const {
    return phantom_ ? reinterpret_cast<T*>(std::uintptr_t{1} << 45)
                    : const_cast<T*>(out_[index(rank)].data());
  }

  // Small whole numbers, whose sums are exact in every order.
  static T part(int rank, std::size_t i) {
    return static_cast<T>(static_cast<float>((i * 7 + index(rank) * 3 + i / 13) % 13 + 1));
  }
  std::vector<T> summed(int last) const {
    std::vector<double> sum(n_);
    for (int rank = 0; rank <= last; ++rank) {
      for (std::size_t i = 0; i < n_; ++i) sum[i] += static_cast<double>(to_float(part(rank, i)));
    }
    std::vector<T> total;
    for (const double each : sum) total.push_back(static_cast<T>(static_cast<float>(each)));
    return total;
  }
  static float to_float(T value) { return static_cast<float>(value); }

  T wanted(int rank, std::size_t i, const std::vector<T>& total) const {
    switch (what_) {
      case collective::all_reduce:
        return total[i];
      case collective::reduce:
        return is_root(rank) ? total[i] : part(rank, i);
      case collective::reduce_scatter:
        return total[parts_.offset(rank) + i];
      case collective::broadcast:
        return part(root_, i);
      case collective::all_gather:
        return part(holder(i), i);
      case collective::gather:
        return is_root(rank) ? part(holder(i), i) : part(rank, parts_.offset(rank) + i);
      case collective::scatter:
        return part(root_, parts_.offset(rank) + i);
      case collective::all_to_all: {
        const std::size_t each = share(rank);
        return part(static_cast<int>(i / each), parts_.offset(rank) + i % each);
      }
      default:
        return part(rank, i);
    }
  }
  // The rank whose share element i is in.
  int holder(std::size_t i) const {
    int low = 0;
    for (int high = ranks_; high - low > 1;) {
      const int middle = low + (high - low) / 2;
      (parts_.offset(middle) <= i ? low : high) = middle;
    }
    return low;
  }

  bool scans_right() const {
    std::vector<double> sum(n_);
    const bool before = what_ == collective::exscan;
    for (int rank = 0; rank < ranks_; ++rank) {
      for (std::size_t i = 0; i < n_; ++i) {
        const double lower = sum[i];
        sum[i] += static_cast<double>(to_float(part(rank, i)));
        const T want = before && rank == 0
                           ? part(0, i)
                           : static_cast<T>(static_cast<float>(before ? lower : sum[i]));
        if (!(in_[index(rank)][i] == want)) return false;
      }
    }
    return true;
  }

  collective what_;
  int ranks_;
  std::size_t n_;
  int root_;
  bool phantom_;
  colls::partition parts_;
  colls::options call_;
  std::vector<std::size_t> counts_;  // where the shares are not equal
  std::vector<std::vector<T>> in_;
  std::vector<std::vector<T>> out_;
};

inline std::size_t size_of(const std::string& dtype) {
  return dtype == "double" ? 8 : dtype == "bfloat16" ? 2 : 4;
}

inline std::unique_ptr<job> make_job(const options& how) {
  const std::uint64_t n = how.elements(size_of(how.dtype));
  if (how.dtype == "double") return std::make_unique<typed_job<double>>(how, n);
  if (how.dtype == "int32") return std::make_unique<typed_job<std::int32_t>>(how, n);
  if (how.dtype == "bfloat16") return std::make_unique<typed_job<colls::bfloat16>>(how, n);
  return std::make_unique<typed_job<float>>(how, n);
}

}  // namespace sim
