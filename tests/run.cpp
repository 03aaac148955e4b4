// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/run.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "support/tcp_threads.hpp"

namespace {

using colls::sync_wait;
using colls::task;
using colls::world;

using statuses = std::vector<int>;

int sum_of_ranks(world& all) {
  int x[] = {all.rank() + 1};
  sync_wait(all, all.all_reduce(x));
  return x[0];
}

TEST_CASE("main can be a task") {
  CHECK(run_tcp(2, [](world& all) -> task<> { co_await all.barrier(); }) == statuses{0, 0});
  CHECK(run_tcp(2, [](world& all) -> task<int> {
          int x[] = {all.rank() + 1};
          co_await all.all_reduce(x);
          co_return x[0] + all.rank();
        }) == statuses{3, 4});
}

TEST_CASE("main can be a plain function, which waits by sync_wait") {
  std::vector<int> sums(3);
  CHECK(run_tcp(3, [&](world& all) {
          for (int i = 0; i < 100; ++i)
            sums[static_cast<std::size_t>(all.rank())] = sum_of_ranks(all);
        }) == statuses{0, 0, 0});
  CHECK(sums == std::vector<int>{6, 6, 6});
  CHECK(run_tcp(2, [](world& all) { return sum_of_ranks(all) + all.rank(); }) == statuses{3, 4});
}

TEST_CASE("a plain function that throws revokes the world, so that no rank waits for it") {
  std::vector<std::string> details(3);
  const auto main = [&](world& all) {
    if (all.rank() == 1) {
      sync_wait(all, all.barrier());  // all ranks have joined, otherwise the error would end a join
      throw std::runtime_error("rank 1 has had enough");
    }
    try {
      for (;;) sync_wait(all, all.barrier());
    } catch (const colls::error& thrown) {
      details[static_cast<std::size_t>(all.rank())] = thrown.record().detail;
      CHECK(thrown.record().culprit == 1);
      throw;
    }
  };
  CHECK(run_tcp(3, main) == statuses{1, 1, 1});
  CHECK(details == std::vector<std::string>{"rank 1 has had enough", "", "rank 1 has had enough"});
}

TEST_CASE("a main may throw anything") {
  std::vector<std::string> details(2);
  const auto main = [&](world& all) {
    sync_wait(all, all.barrier());
    if (all.rank() == 0) throw 42;
    try {
      sync_wait(all, all.barrier());
    } catch (const colls::error& thrown) {
      details[1] = thrown.record().detail;
    }
  };
  CHECK(run_tcp(2, main) == statuses{1, 0});
  CHECK(details[1] == "a rank's main threw something that is no std::exception");
}

TEST_CASE("a world can have the longest possible timeout") {
  const colls::config patient{.rank = 0,
                              .size = 1,
                              .join_timeout = std::chrono::hours::max(),
                              .timeout = std::chrono::hours::max()};
  CHECK(colls::run([](world& all) { sync_wait(all, all.barrier()); }, patient) == 0);
}

TEST_CASE("code that blocks may be called by a task that runs on the same executor") {
  CHECK(run_tcp(2, [](world& all) -> task<int> {
          co_await all.barrier();
          int sum = 0;
          for (int i = 0; i < 100; ++i) sum = sum_of_ranks(all);
          co_await all.barrier();
          co_return sum;
        }) == statuses{3, 3});
}

}  // namespace
