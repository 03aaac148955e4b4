// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Whether who waits on a shared core lets others run and looks again, or had better sleep at once.

#include <colls/base/clock.hpp>

#include <algorithm>

namespace colls {

/// Between ranks that all give the core away soon, a yield is cheaper than a sleep and a wake-up.
/// Where somebody computes on that core it takes his whole slice, and who is woken comes first:
/// after two such yields in a row the next waits sleep, for twice as long each time it is so again.
class yielding {
 public:
  /// For at most that time of a wait; 0: never.
  explicit yielding(time_point longest = 0) : longest_(longest) {}
  time_point longest() const { return longest_; }

  /// Whether to yield now; `begins`: this wait has not asked before.
  bool wanted(bool begins, time_point now) {
    if (begins) since_ = now;
    return now - since_ < longest_ && now >= asleep_until_;
  }

  /// A yield took from `given` to `back`.
  void took(time_point given, time_point back) {
    if (back - given < slice) return;
    const bool again = given - asleep_until_ < in_a_row;
    asleep_for_ = again ? std::min(2 * asleep_for_ + milliseconds, longest_sleep) : 0;
    asleep_until_ = back + asleep_for_;
  }

 private:
  static constexpr time_point slice = 3 * milliseconds;  // ranks that wait give a core back before
  static constexpr time_point in_a_row = 50 * milliseconds;
  static constexpr time_point longest_sleep = 8 * milliseconds;

  time_point longest_;
  time_point since_ = 0;
  time_point asleep_for_ = 0;
  time_point asleep_until_ = -in_a_row;
};

}  // namespace colls
