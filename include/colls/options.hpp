// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: what every call may be told beyond its data.

#include <colls/buffer.hpp>
#include <colls/clock.hpp>

#include <type_traits>

namespace colls {

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

/// Trailing argument of every call. All but `timeout` and `stream` must be equal on all ranks.
struct options {
  colls::algorithm algorithm = colls::algorithm::automatic;  // pinned: never silently another
  time_span timeout{};                                       // total deadline of this operation
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: `tuning` decides
  int radix = 0;            // of knomial_tree, bruck, dissemination: 2 or more; 0: `tuning` decides
  colls::order order = colls::order::any;
  colls::wire wire = colls::wire::accumulate;
  stream_ref stream{};
};
static_assert(std::is_trivially_destructible_v<options>);

}  // namespace colls
