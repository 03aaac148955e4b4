// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/os/rate_limited_log.hpp>

#include "../support/logged.hpp"

using namespace logged;

TEST_CASE("rate-limited warnings are written once in a period and tell how many were suppressed") {
  const output got = in_process({}, [] {
    colls::rate_limited_log log(1);
    for (int i = 0; i < 100; ++i) log.warn("number %d", i);
    ::usleep(2'100'000);
    log.warn("later");
    if (log.count() != 101) ::_exit(1);
  });
  CHECK(got.err ==
        "colls: [-] warning: number 0\ncolls: [-] warning: later (and 99 more like it)\n");
}
