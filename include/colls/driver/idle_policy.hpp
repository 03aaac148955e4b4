// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The idle policy: whether a thread that waits on a shared core yields the core or sleeps.

#include <colls/base/clock.hpp>

#include <algorithm>

namespace colls {

/// A yield is cheaper than a sleep and a wake-up as long as the other threads of the core give it
/// back soon. A thread that computes keeps it for a full time slice, and the scheduler prefers a
/// thread that was woken. After two such yields in a row the policy therefore sleeps for some time,
/// and for twice as long each time it happens again.
class idle_policy {
 public:
  /// A wait yields for at most `max_yield`; 0 disables yields.
  explicit idle_policy(time_point max_yield = 0) : max_yield_(max_yield) {}
  time_point max_yield() const { return max_yield_; }

  /// Returns whether to yield now. `is_first`: this is the first question of this wait.
  bool should_yield(bool is_first, time_point now) {
    if (is_first) wait_start_ = now;
    return now - wait_start_ < max_yield_ && now >= sleep_until_;
  }

  /// Records a yield from `start` to `end`.
  void record_yield(time_point start, time_point end) {
    if (end - start < long_yield) return;
    const bool again = start - sleep_until_ < in_a_row;
    sleep_duration_ = again ? std::min(2 * sleep_duration_ + milliseconds, max_sleep) : 0;
    sleep_until_ = end + sleep_duration_;
  }

 private:
  // A waiting rank gives the core back sooner than this.
  static constexpr time_point long_yield = 3 * milliseconds;
  // Two long yields count as consecutive if no more than this lies between them.
  static constexpr time_point in_a_row = 50 * milliseconds;
  static constexpr time_point max_sleep = 8 * milliseconds;

  time_point max_yield_;
  time_point wait_start_ = 0;
  time_point sleep_duration_ = 0;
  time_point sleep_until_ = -in_a_row;
};

}  // namespace colls
