// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc/inproc_transport.hpp>

#include "suite.hpp"

// This world costs least and runs with the most rank counts.
#ifndef FEW_RANKS
template <>
inline constexpr auto conformance::sizes<colls::inproc_world> =
    std::to_array({1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 21, 33, 64});
#endif

TEST_CASE("every algorithm over inproc") { conformance::conforms<colls::inproc_world>(); }
