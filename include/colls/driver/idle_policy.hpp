// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// idle_policy: decides whether a waiting thread yields its core to other threads or sleeps.

#include <colls/base/clock.hpp>

#include <algorithm>

namespace colls {

/// The policy that decides whether a waiting thread yields its core or sleeps. If the other threads
/// on the core only wait, a yield is short and costs less than a sleep and a wake-up. But if
/// another thread computes, a yield lasts for a full time slice, whereas a thread that wakes up
/// from a sleep gets the core back soon. Therefore, after two long yields in a row, waiting threads
/// do not yield for some time and sleep instead. Each further long yield in a row about doubles
/// this time, up to `max_sleep`.
class idle_policy {
 public:
  /// Constructs a policy. In each wait, the thread may yield until `max_yield` has passed since the
  /// first call of `should_yield` in that wait. If `max_yield` is 0, the thread never yields.
  explicit idle_policy(time_point max_yield = 0) : max_yield_(max_yield) {}
  time_point max_yield() const { return max_yield_; }

  /// Returns whether the thread should yield now. `is_first` must be true in the first call of each
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
  // The shortest duration of a long yield. A thread that only waits gives the core back sooner.
  // Therefore a long yield means that another thread has computed.
  static constexpr time_point long_yield = 3 * milliseconds;
  // Two long yields are in a row if less than this time passes between them. The time during which
  // the policy forbids yields does not count.
  static constexpr time_point in_a_row = 50 * milliseconds;
  static constexpr time_point max_sleep = 8 * milliseconds;

  time_point max_yield_;
  time_point wait_start_ = 0;
  time_point sleep_duration_ = 0;
  time_point sleep_until_ = -in_a_row;
};

}  // namespace colls
