// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Tests a transport of the user's own, that of docs/adding_a_transport.md.

#include "../support/socketpair_world.hpp"

#include "../conformance/suite.hpp"

TEST_CASE("every algorithm over socketpairs") { conformance::conforms<socketpair_world>(); }
