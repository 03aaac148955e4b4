// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc.hpp>

#include "suite.hpp"

TEST_CASE("every algorithm over inproc") { conformance::conforms<colls::inproc_world>(); }
