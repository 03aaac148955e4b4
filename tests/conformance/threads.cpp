// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../support/driven_threads.hpp"
#include "suite.hpp"

TEST_CASE("every algorithm over threads") { conformance::conforms<driven_threads>(); }
