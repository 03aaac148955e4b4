// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/driver/idle_policy.hpp>

#include <doctest/doctest.h>

using namespace colls;

TEST_CASE("a wait yields for its time, and the next one again") {
  yielding waits(10 * milliseconds);
  CHECK(waits.wanted(true, 0));
  CHECK(waits.wanted(false, 9 * milliseconds));
  CHECK_FALSE(waits.wanted(false, 10 * milliseconds));
  CHECK(waits.wanted(true, 11 * milliseconds));
  CHECK_FALSE(yielding().wanted(true, 0));
}

TEST_CASE("one yield that took a slice changes nothing, nor do many short ones") {
  yielding waits(10 * milliseconds);
  waits.took(0, 4 * milliseconds);
  CHECK(waits.wanted(true, 4 * milliseconds));
  time_point now = 4 * milliseconds;
  for (int i = 0; i < 1000; ++i, now += 1000) waits.took(now, now + 1000);
  CHECK(waits.wanted(true, now));
  waits.took(now + 100 * milliseconds, now + 104 * milliseconds);
  CHECK(waits.wanted(true, now + 104 * milliseconds));
}

TEST_CASE("where others keep the core waits sleep, and try now and then whether it is still so") {
  yielding waits(10 * milliseconds);
  time_point now = 0;
  time_point slept = 0;
  int yields = 0;
  while (now < seconds) {
    if (waits.wanted(true, now)) {
      waits.took(now, now + 4 * milliseconds);
      now += 4 * milliseconds;
      ++yields;
    } else {
      now += milliseconds / 10;
      slept += milliseconds / 10;
    }
  }
  CHECK(yields > 10);
  CHECK(slept > 600 * milliseconds);

  for (int i = 0; i < 10; ++i, now += 50 * milliseconds) {
    REQUIRE(waits.wanted(true, now + 8 * milliseconds));
    waits.took(now + 8 * milliseconds, now + 8 * milliseconds + 1000);
  }
  waits.took(now, now + 4 * milliseconds);  // long ago that it was so: one alone again
  CHECK(waits.wanted(true, now + 4 * milliseconds));
}
