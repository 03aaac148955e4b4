// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// idle_policy: decides whether a waiting thread yields its core to other threads or sleeps.

#include <colls/base/clock.hpp>

#include <algorithm>

namespace colls {

/// The policy by which a waiting thread shares its core with other threads. A yield is cheaper than
/// a sleep and a wake-up if the other threads give the core back soon. But after a yield, a thread
/// that computes keeps the core for a full time slice, whereas a thread that wakes up from a sleep
/// gets the core back soon. After two such long yields in a row, the policy makes waits sleep
/// instead of yield for some time. Each further long yield in a row about doubles this time.
class idle_policy {
 public:
  /// Constructs a policy by which each wait yields for at most `max_yield`, or never if `max_yield`
  /// is 0.
  explicit idle_policy(time_point max_yield = 0) : max_yield_(max_yield) {}
  time_point max_yield() const { return max_yield_; }

  /// Returns whether the thread should yield now. `is_first` is true for the first call of each
  /// wait.
  bool should_yield(bool is_first, time_point now) {
    if (is_first) wait_start_ = now;
    return now - wait_start_ < max_yield_ && now >= sleep_until_;
  }

  /// Records that the thread has yielded from `start` to `end`.
  void record_yield(time_point start, time_point end) {
    if (end - start < long_yield) return;
    const bool again = start - sleep_until_ < in_a_row;
    sleep_duration_ = again ? std::min(2 * sleep_duration_ + milliseconds, max_sleep) : 0;
    sleep_until_ = end + sleep_duration_;
  }

 private:
  // The length from which a yield counts as long. A rank that only waits gives the core back
  // sooner, so another thread has computed during a long yield.
  static constexpr time_point long_yield = 3 * milliseconds;
  // Two long yields count as consecutive if at most this much time lies between them.
  static constexpr time_point in_a_row = 50 * milliseconds;
  static constexpr time_point max_sleep = 8 * milliseconds;

  time_point max_yield_;
  time_point wait_start_ = 0;
  time_point sleep_duration_ = 0;
  time_point sleep_until_ = -in_a_row;
};

}  // namespace colls
