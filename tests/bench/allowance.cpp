// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../../bench/colls_bench/allowance.hpp"

#include <doctest/doctest.h>

namespace {

/// How many iterations are measured where turn i takes `time_of(i)` seconds, as colls-bench asks;
/// the first turn does not count.
template <class Time>
int measured(double seconds, int most, const Time& time_of) {
  bench::allowance allowed(seconds, most);
  int iterations = most;
  int turns = 0;
  double spent = 0;
  int k = 0;
  for (; k < iterations; ++k) {
    if (++turns > 1) spent += time_of(turns);
    if (!allowed.is_due(turns, k + 1 == iterations)) continue;
    iterations = allowed.iterations(k + 1, turns, spent);
    spent = 0;
  }
  return k;
}

}  // namespace

TEST_CASE("a slow start is no reason to measure few turns") {
  const auto slow_start = [](int turn) { return turn <= 4 ? 5e-3 : 10e-6; };
  CHECK(measured(0.05, 100'000, slow_start) > 1000);
  CHECK(measured(0.05, 500, slow_start) == 500);
}

TEST_CASE("what takes longer than the time allows is measured five times") {
  CHECK(measured(0.05, 1000, [](int) { return 1.0; }) == 5);
  CHECK(measured(0.05, 2, [](int) { return 1.0; }) == 2);
  CHECK(measured(0.05, 1, [](int) { return 1.0; }) == 1);
}

TEST_CASE("turns that slow down end in time, turns at one pace take about all of it") {
  const int even = measured(0.05, 100'000, [](int) { return 50e-6; });
  CHECK(even > 850);
  CHECK(even < 1100);
  double all = 0;
  measured(0.05, 100'000, [&](int turn) {
    const double took = turn < 40 ? 10e-6 : 1e-3;
    all += took;
    return took;
  });
  CHECK(all < 1);
}
