// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Time as floors 1 to 4 know it: a number that a transport's clock gives.

#include <cstdint>

namespace colls {

/// Nanoseconds of the transport's clock: steady, or virtual in the simulator.
using time_point = std::int64_t;
inline constexpr time_point never = INT64_MAX;
inline constexpr time_point milliseconds = 1'000'000;
inline constexpr time_point seconds = 1'000'000'000;
/// How long drivers nap at most while they wait for what wakes nobody (see `watched`).
inline constexpr time_point watched_nap = 20'000;

}  // namespace colls
