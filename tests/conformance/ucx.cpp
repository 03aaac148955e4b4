// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../support/ucx_world.hpp"
#include "suite.hpp"

TEST_CASE("every algorithm over UCX") {
  const auto before = colls::ucx::counted_traffic();
  conformance::conforms<ucx_world>();
  const auto after = colls::ucx::counted_traffic();
  CHECK(after.messages_sent > before.messages_sent);
  CHECK(after.messages_received > before.messages_received);
}
