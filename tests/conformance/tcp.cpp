// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../support/tcp_world.hpp"
#include "suite.hpp"

TEST_CASE("every algorithm over sockets") { conformance::conforms<tcp_world>(); }
TEST_CASE("every algorithm over shared memory") { conformance::conforms<shm_world>(); }
