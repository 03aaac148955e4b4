// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// bucket_plan: assigns the gradients of a model's parameters to buckets. The gradients in one
// bucket are communicated together.

#include <colls/base/error.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace colls::ddp {

/// The assignment of gradients to buckets: for each gradient, its bucket and its position in that
/// bucket. The constructor fills one bucket after the other with gradients, in the order in which
/// the gradients are expected to become ready. The first bucket is full when it holds at least
/// `first_cap` elements. Every other bucket is full when it holds at least `cap` elements. A
/// gradient is never divided between buckets.
class bucket_plan {
 public:
  struct location {
    std::size_t bucket;
    std::size_t offset;  // the position in the bucket, in elements
  };
  struct bucket {
    std::vector<std::size_t> parameters;
    std::size_t elements = 0;
  };

  bucket_plan() = default;
  /// Puts the gradients into buckets. `order` has the indices of the parameters in the order in
  /// which their gradients are put into buckets. `counts` has the number of elements of each
  /// parameter. Throws `errc::invalid_argument` if `order` does not contain each index exactly
  /// once.
  bucket_plan(std::span<const std::size_t> counts, std::vector<std::size_t> order,
              std::size_t first_cap, std::size_t cap)
      : order_(std::move(order)), locations_(counts.size()) {
    check_order(counts.size());
    bool full = true;
    for (const std::size_t parameter : order_) {
      if (full) buckets_.emplace_back();
      bucket& last = buckets_.back();
      locations_[parameter] = {buckets_.size() - 1, last.elements};
      last.parameters.push_back(parameter);
      last.elements += counts[parameter];
      full = last.elements >= (buckets_.size() == 1 ? first_cap : cap);
    }
  }

  /// Returns the indices of the parameters from the last to the first. In most models, gradients
  /// become ready in about this order.
  static std::vector<std::size_t> reverse_order(std::size_t parameters) {
    std::vector<std::size_t> order(parameters);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
  }

  const std::vector<std::size_t>& order() const { return order_; }
  const std::vector<bucket>& buckets() const { return buckets_; }
  const location& operator[](std::size_t parameter) const { return locations_[parameter]; }

 private:
  void check_order(std::size_t parameters) const {
    std::vector<bool> seen(parameters);
    for (const std::size_t parameter : order_) {
      if (parameter >= parameters || seen[parameter]) break;
      seen[parameter] = true;
    }
    if (order_.size() == parameters && std::find(seen.begin(), seen.end(), false) == seen.end()) {
      return;
    }
    throw error(errc::invalid_argument,
                "the order of the buckets does not name every parameter once");
  }

  std::vector<std::size_t> order_;
  std::vector<location> locations_;
  std::vector<bucket> buckets_;
};

}  // namespace colls::ddp
