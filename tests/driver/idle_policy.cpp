// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/driver/idle_policy.hpp>

#include <doctest/doctest.h>

using namespace colls;

TEST_CASE("each wait yields for at most the maximum time") {
  idle_policy policy(10 * milliseconds);
  CHECK(policy.should_yield(true, 0));
  CHECK(policy.should_yield(false, 9 * milliseconds));
  CHECK_FALSE(policy.should_yield(false, 10 * milliseconds));
  CHECK(policy.should_yield(true, 11 * milliseconds));
  CHECK_FALSE(idle_policy().should_yield(true, 0));
}

TEST_CASE("a single long yield changes nothing, nor do many short ones") {
  idle_policy policy(10 * milliseconds);
  policy.record_yield(0, 4 * milliseconds);
  CHECK(policy.should_yield(true, 4 * milliseconds));
  time_point now = 4 * milliseconds;
  for (int i = 0; i < 1000; ++i, now += 1000) policy.record_yield(now, now + 1000);
  CHECK(policy.should_yield(true, now));
  policy.record_yield(now + 100 * milliseconds, now + 104 * milliseconds);
  CHECK(policy.should_yield(true, now + 104 * milliseconds));
}

TEST_CASE("after repeated long yields waits sleep, and try a yield from time to time") {
  idle_policy policy(10 * milliseconds);
  time_point now = 0;
  time_point slept = 0;
  int yields = 0;
  while (now < seconds) {
    if (policy.should_yield(true, now)) {
      policy.record_yield(now, now + 4 * milliseconds);
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
    REQUIRE(policy.should_yield(true, now + 8 * milliseconds));
    policy.record_yield(now + 8 * milliseconds, now + 8 * milliseconds + 1000);
  }
  policy.record_yield(now, now + 4 * milliseconds);  // long after the last long yield
  CHECK(policy.should_yield(true, now + 4 * milliseconds));
}
