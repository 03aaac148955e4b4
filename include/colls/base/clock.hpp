// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Time: a number that a transport's clock gives, and spans of it as users write them.

#include <cstdint>

namespace colls {

/// Nanoseconds of the transport's clock: steady, or virtual in the simulator.
using time_point = std::int64_t;
inline constexpr time_point never = INT64_MAX;
inline constexpr time_point milliseconds = 1'000'000;
inline constexpr time_point seconds = 1'000'000'000;
/// How long drivers nap at most while they wait for what wakes nobody (see `watched`), where ranks
/// outnumber cores.
inline constexpr time_point watched_nap = 20'000;

/// A length of time, from any std::chrono duration; 0: none.
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

  static constexpr time_span of(time_point nanoseconds) {
    time_span made;
    made.nanoseconds_ = nanoseconds;
    return made;
  }
  /// When it is over if it begins at `from`, which is not before 0.
  constexpr time_point after(time_point from) const {
    return nanoseconds_ < never - from ? from + nanoseconds_ : never;
  }

 private:
  // Any span that is not 0 stays one, and what no clock reaches is `never`.
  static constexpr time_point rounded(long double nanoseconds) {
    if (nanoseconds >= static_cast<long double>(never)) return never;
    if (nanoseconds <= -static_cast<long double>(never)) return -never;
    const auto whole = static_cast<time_point>(nanoseconds);
    return whole == 0 && nanoseconds != 0 ? 1 : whole;
  }

  time_point nanoseconds_ = 0;
};

}  // namespace colls
