// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Time: points of a transport's clock, and durations as users write them.

#include <cstdint>

namespace colls {

/// Nanoseconds on a transport's clock: steady, or virtual in the simulator.
using time_point = std::int64_t;
inline constexpr time_point never = INT64_MAX;
inline constexpr time_point milliseconds = 1'000'000;
inline constexpr time_point seconds = 1'000'000'000;
/// The longest sleep of a driver between two checks of a condition that has no wake-up (see
/// `polled_condition`), where ranks outnumber cores.
inline constexpr time_point max_poll_sleep = 20'000;

/// A duration, converted from any std::chrono duration; 0: none.
class time_span {
 public:
  constexpr time_span() = default;
  template <class Duration>
    requires requires(const Duration& span) {
      span.count();
      Duration::period::num;
    }
  constexpr time_span(const Duration& span)  // NOLINT: `.timeout = 5s` is the point
      : nanoseconds_(rounded(static_cast<long double>(span.count()) * seconds *
                             Duration::period::num / Duration::period::den)) {}
  constexpr time_point count() const { return nanoseconds_; }
  constexpr explicit operator bool() const { return nanoseconds_ != 0; }
  friend constexpr bool operator==(const time_span&, const time_span&) = default;

  static constexpr time_span from_nanoseconds(time_point nanoseconds) {
    time_span span;
    span.nanoseconds_ = nanoseconds;
    return span;
  }
  /// Returns the end of this duration if it begins at `start`, which is not negative.
  constexpr time_point after(time_point start) const {
    return nanoseconds_ < never - start ? start + nanoseconds_ : never;
  }

 private:
  // A duration other than 0 does not become 0, and one too long to count becomes `never`.
  static constexpr time_point rounded(long double nanoseconds) {
    if (nanoseconds >= static_cast<long double>(never)) return never;
    if (nanoseconds <= -static_cast<long double>(never)) return -never;
    const auto integral = static_cast<time_point>(nanoseconds);
    return integral == 0 && nanoseconds != 0 ? 1 : integral;
  }

  time_point nanoseconds_ = 0;
};

}  // namespace colls
