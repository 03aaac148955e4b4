// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../tcp_world.hpp"
#include "suite.hpp"

// Shared memory has all sizes; sockets take longer, and differ only in how bytes travel.
template <>
inline constexpr auto conformance::sizes<tcp_world> = std::to_array({1, 2, 3, 5});

TEST_CASE("every algorithm over sockets") { conformance::conforms<tcp_world>(); }
TEST_CASE("every algorithm over shared memory") { conformance::conforms<shm_world>(); }
