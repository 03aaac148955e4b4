// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// A rank that is stopped (SIGSTOP, a debugger, a frozen container) is late. If it goes on before
// the deadline nothing is lost. After the deadline all other ranks have ended, and it gets the
// error itself.

#include "processes.hpp"

#include <random>

using namespace processes;
using colls::errc;

namespace {

/// Makes sums and checks them, until one fails or the test tells rank 0 to make the last one.
task<> sum(colls::world& world, const line& test, std::size_t size,
           std::chrono::milliseconds limit) {
  std::vector<int> data(size);
  for (int i = 0;; ++i) {
    data.assign(size, world.rank() + i);
    data[0] = world.rank() == 0 && test.told() ? 1 : 0;
    co_await world.all_reduce(data, {.timeout = limit});
    const int p = world.size();
    const int right = p * i + p * (p - 1) / 2;
    if (std::count(data.begin() + 1, data.end(), right) != std::ssize(data) - 1) {
      throw colls::error(errc::user_op_failed, "a wrong sum");
    }
    if (data[0] != 0) co_return;
  }
}

}  // namespace

TEST_CASE("a rank that is stopped and goes on before the deadline has missed nothing") {
  std::mt19937 random(1);
  for (int round = 0; round < 8; ++round) {
    const int size = 2 + round % 3;
    const int stopped = static_cast<int>(random() % static_cast<unsigned>(size));
    const std::size_t count = round % 2 == 0 ? 10 : 300'000;
    CAPTURE(size);
    CAPTURE(stopped);
    CAPTURE(count);
    const auto main = [=](colls::world& world, const line& test) -> task<> {
      test.say("ready");
      co_await sum(world, test, count, std::chrono::minutes(1));
    };
    job all(size, main, {.transport = round % 4 < 2 ? hybrid() : network()});
    REQUIRE(all.all_say("ready"));
    ::usleep(static_cast<unsigned>(random() % 20'000));
    all.stop(stopped);
    ::usleep(300'000);  // longer than ranks wait before they announce what they wait for
    all.go_on(stopped);
    all.tell(0);
    for (int rank = 0; rank < size; ++rank) {
      const ending& end = all.wait(rank);
      CAPTURE(rank);
      CAPTURE(end.message);
      CHECK(end.status == 0);
      CHECK(all.log(rank) == "");
    }
  }
}

TEST_CASE("a rank that is stopped beyond the deadline: all others end in time, then it does") {
  std::mt19937 random(2);
  for (int round = 0; round < 6; ++round) {
    const int size = 2 + round % 3;
    const int stopped = round % size;
    const std::size_t count = round < 3 ? 10 : 300'000;
    CAPTURE(size);
    CAPTURE(stopped);
    CAPTURE(count);
    const auto main = [=](colls::world& world, const line& test) -> task<> {
      test.say("ready");
      co_await sum(world, test, count, std::chrono::seconds(1));
    };
    job all(size, main, {.transport = round % 2 == 0 ? hybrid() : network()});
    REQUIRE(all.all_say("ready"));
    ::usleep(static_cast<unsigned>(random() % 20'000));
    const double stopped_at = now();
    all.stop(stopped);
    for (int turn = 0; turn < size; ++turn) {
      const int rank = (stopped + 1 + turn) % size;  // itself last
      if (rank == stopped) all.go_on(stopped);
      const ending& end = all.wait(rank);
      CAPTURE(rank);
      CAPTURE(end.message);
      CHECK(end.code == errc::timeout);
      CHECK(end.culprit == stopped);
      if (rank != stopped) CHECK(end.time - stopped_at < 1 + detection::at_most);
    }
  }
}
