// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include "../../bench/colls_bench/allowance.hpp"

#include <doctest/doctest.h>

namespace {

/// Returns how many iterations colls-bench measures if call i takes `time_of(i)` seconds. The time
/// of the first call is not counted.
template <class Time>
int measured(double seconds, int max_iterations, const Time& time_of) {
  bench::allowance allowed(seconds, max_iterations);
  int iterations = max_iterations;
  int calls = 0;
  double spent = 0;
  int k = 0;
  for (; k < iterations; ++k) {
    if (++calls > 1) spent += time_of(calls);
    if (!allowed.is_due(calls, k + 1 == iterations)) continue;
    iterations = allowed.iterations(k + 1, calls, spent);
    spent = 0;
  }
  return k;
}

}  // namespace

TEST_CASE("a slow start does not reduce the number of iterations") {
  const auto slow_start = [](int call) { return call <= 4 ? 5e-3 : 10e-6; };
  CHECK(measured(0.05, 100'000, slow_start) > 1000);
  CHECK(measured(0.05, 500, slow_start) == 500);
}

TEST_CASE("calls that take longer than the allowed time are measured five times") {
  CHECK(measured(0.05, 1000, [](int) { return 1.0; }) == 5);
  CHECK(measured(0.05, 2, [](int) { return 1.0; }) == 2);
  CHECK(measured(0.05, 1, [](int) { return 1.0; }) == 1);
}

TEST_CASE("calls that slow down end in time, calls of equal length use most of the time") {
  const int even = measured(0.05, 100'000, [](int) { return 50e-6; });
  CHECK(even > 850);
  CHECK(even < 1100);
  double all = 0;
  measured(0.05, 100'000, [&](int call) {
    const double took = call < 40 ? 10e-6 : 1e-3;
    all += took;
    return took;
  });
  CHECK(all < 1);
}
