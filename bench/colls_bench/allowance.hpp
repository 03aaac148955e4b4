// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How many iterations a time allows.

#include <algorithm>
#include <utility>

namespace bench {

/// The ranks agree now and then on how long the last turns took: the first ones of a program may be
/// slow, and are no reason to measure few.
class allowance {
 public:
  allowance(double seconds, int most)
      : left_(seconds), all_(seconds), least_(std::min(5, most)), most_(most) {}

  /// Whether to ask after so many turns; `last`: of the iterations that were allowed.
  bool is_due(int turns, bool last) const { return turns == due_ || (last && turns > 1); }
  /// After `done` of them, the turns since the last question having taken `spent` seconds.
  int iterations(int done, int turns, double spent) {
    if (turns == due_) due_ *= 10;
    left_ -= spent;
    const double more = left_ * (turns - std::exchange(asked_, turns)) / spent;
    if (left_ < all_ / 10 || more < 1) return std::clamp(done, least_, most_);
    return static_cast<int>(std::clamp<double>(done + more, least_, most_));
  }

 private:
  double left_;
  double all_;
  int least_;
  int most_;
  int due_ = 3;
  int asked_ = 1;  // the turn of the last question
};

}  // namespace bench
