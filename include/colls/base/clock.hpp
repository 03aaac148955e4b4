// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// clock: points in time on the clock of a transport, and durations that users pass as options.

#include <cstdint>

namespace colls {

/// A point in time, in nanoseconds on the clock of a transport. The clock is steady; in the
/// simulator it is virtual.
using time_point = std::int64_t;
inline constexpr time_point never = INT64_MAX;
inline constexpr time_point milliseconds = 1'000'000;
inline constexpr time_point seconds = 1'000'000'000;
/// The longest time for which a driver sleeps between two checks of a `polled_condition`. A driver
/// is the event loop that runs while a rank waits. It has to check the condition again and again,
/// because no event wakes it when the condition becomes true. It sleeps between the checks only if
/// there are more ranks than cores.
inline constexpr time_point max_poll_sleep = 20'000;

/// A duration in nanoseconds. Any std::chrono duration converts to it implicitly. The value 0 means
/// that no duration is set.
class time_span {
 public:
  constexpr time_span() = default;
  template <class Duration>
    requires requires(const Duration& span) {
      span.count();
      Duration::period::num;
    }
  constexpr time_span(const Duration& span)  // NOLINT: implicit, so that `.timeout = 5s` compiles
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
  /// Returns the time that is this duration after `start`, or `never` if the sum overflows. `start`
  /// must not be negative.
  constexpr time_point after(time_point start) const {
    return nanoseconds_ < never - start ? start + nanoseconds_ : never;
  }

 private:
  // Rounds a duration toward zero to a whole number of nanoseconds. If the duration is not 0 but
  // would be rounded to 0, returns 1, because 0 means that no duration is set. If the duration is
  // too long for a `time_point`, returns `never`, or `-never` if the duration is negative.
  static constexpr time_point rounded(long double nanoseconds) {
    if (nanoseconds >= static_cast<long double>(never)) return never;
    if (nanoseconds <= -static_cast<long double>(never)) return -never;
    const auto integral = static_cast<time_point>(nanoseconds);
    return integral == 0 && nanoseconds != 0 ? 1 : integral;
  }

  time_point nanoseconds_ = 0;
};

}  // namespace colls
