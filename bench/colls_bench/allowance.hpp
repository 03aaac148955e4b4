// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Limits the number of iterations by time.

#include <algorithm>
#include <utility>

namespace bench {

/// The number of iterations that fit into a time. From time to time the ranks agree on how long the
/// last iterations took, and the estimate follows: the first iterations of a program may be slow
/// and must not reduce the number.
class allowance {
 public:
  allowance(double seconds, int max_iterations)
      : left_(seconds), total_(seconds), min_(std::min(5, max_iterations)), max_(max_iterations) {}

  /// Returns whether the estimate is updated after `calls` calls, warm-up included. `last`: the
  /// call is the last one of those allowed.
  bool is_due(int calls, bool last) const { return calls == due_ || (last && calls > 1); }
  /// Updates the estimate: the calls since the last update took `spent` seconds. Returns the number
  /// of iterations, of which `done` have been made.
  int iterations(int done, int calls, double spent) {
    if (calls == due_) due_ *= 10;
    left_ -= spent;
    const double more = left_ * (calls - std::exchange(updated_, calls)) / spent;
    if (left_ < total_ / 10 || more < 1) return std::clamp(done, min_, max_);
    return static_cast<int>(std::clamp<double>(done + more, min_, max_));
  }

 private:
  double left_;
  double total_;
  int min_;
  int max_;
  int due_ = 3;      // the call after which the next update is due
  int updated_ = 1;  // the call after which the last update was made
};

}  // namespace bench
