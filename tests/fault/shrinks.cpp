// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Processes that go on with what is left of their communicator when some are killed or stopped.

#include "processes.hpp"

#include <csignal>
#include <numeric>
#include <random>

using namespace processes;
using colls::errc;

namespace {

/// Calls collectives until one fails.
task<> work(colls::world& comm, std::span<float> data) {
  try {
    for (;;) co_await comm.all_reduce(data, colls::maximum{});
  } catch (const colls::error&) {
  }
}

/// Shrinks `world`, and says which ranks of it are left and what their sum is.
task<> go_on(colls::world& world, const line& test, std::span<float> data) {
  auto shrinking = world.shrink();
  colls::world left = co_await shrinking;
  std::string text = "left";
  for (int rank = 0; rank < left.size(); ++rank) {
    text += " " + std::to_string(left.previous_rank(rank));
  }
  std::iota(data.begin(), data.end(), static_cast<float>(world.rank()));
  const std::string own = std::to_string(left.previous_rank(left.rank()) - world.rank());
  world = std::move(left);
  co_await world.all_reduce(data);
  text += " sum " + std::to_string(static_cast<int>(data[0])) + " of " + own;
  bool is_right = true;
  for (std::size_t i = 0; i < data.size(); ++i) {
    is_right &= data[i] == data[0] + static_cast<float>(i) * static_cast<float>(world.size());
  }
  test.say(is_right ? text : "wrong sums");
}

/// What each rank says if exactly `lost` of `size` ranks are lost.
std::string expected(int size, const std::vector<int>& lost) {
  std::string text = "left";
  int sum = 0;
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(lost.begin(), lost.end(), rank) != lost.end()) continue;
    text += " " + std::to_string(rank);
    sum += rank;
  }
  return text + " sum " + std::to_string(sum) + " of 0";
}

TEST_CASE("the others go on at once when ranks are killed, rank 0 among them") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    for (const std::size_t count : {std::size_t{2}, std::size_t{100'000}}) {
      const auto live = [=](colls::world& world, const line& test) -> task<> {
        // Memory that peers work in.
        auto buffer = world.allocate<float>(count);
        test.say("works");
        const std::span<float> data(buffer.data(), buffer.size());
        co_await work(world, data);
        co_await go_on(world, test, data);
        test.hear();
      };
      for (const std::vector<int>& victims :
           std::vector<std::vector<int>>{{3}, {0}, {1, 2}, {0, 1, 2, 3}}) {
        const int size = 5;
        job all(size, live, over(transport));
        REQUIRE(all.all_say("works"));
        ::usleep(20'000);
        const double killed_at = now();
        for (const int victim : victims) all.stop(victim);
        for (const int victim : victims) all.kill(victim);
        for (int rank = 0; rank < size; ++rank) {
          if (std::find(victims.begin(), victims.end(), rank) != victims.end()) continue;
          CAPTURE(rank);
          CHECK(all.hear(rank, 10) == expected(size, victims));
          CHECK(now() - killed_at < 5);
        }
        const auto is_victim = [&](int rank) {
          return std::find(victims.begin(), victims.end(), rank) != victims.end();
        };
        for (int rank = 0; rank < size; ++rank) {
          if (!is_victim(rank)) all.tell(rank);
        }
        for (int rank = 0; rank < size; ++rank) {
          if (!is_victim(rank)) CHECK(all.wait(rank, 5).status == 0);
        }
      }
    }
  }
}

TEST_CASE("ranks are killed one after the other until one is left") {
  std::mt19937 random(3);
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    for (int run = 0; run < runs(2); ++run) {
      const int size = 6;
      const auto live = [](colls::world& world, const line& test) -> task<> {
        std::vector<float> data(10'000);
        const int own = world.rank();
        std::vector<int> ranks(static_cast<std::size_t>(world.size()));
        std::iota(ranks.begin(), ranks.end(), 0);
        test.say("works");
        while (world.size() > 1) {
          co_await work(world, data);
          colls::world left = co_await world.shrink();
          std::vector<int> next;
          for (int rank = 0; rank < left.size(); ++rank) {
            next.push_back(ranks[static_cast<std::size_t>(left.previous_rank(rank))]);
          }
          ranks = next;
          world = std::move(left);
          std::string text = "left";
          for (const int rank : ranks) text += " " + std::to_string(rank);
          if (ranks[static_cast<std::size_t>(world.rank())] != own) text = "another rank";
          test.say(text);
        }
        test.hear();
      };
      job all(size, live, over(transport));
      REQUIRE(all.all_say("works"));
      std::vector<int> living(size);
      std::iota(living.begin(), living.end(), 0);
      while (living.size() > 1) {
        ::usleep(static_cast<unsigned>(random() % 10'000));
        const auto victim = living.begin() + static_cast<std::ptrdiff_t>(random() % living.size());
        all.kill(*victim);
        living.erase(victim);
        std::string text = "left";
        for (const int rank : living) text += " " + std::to_string(rank);
        for (const int rank : living) {
          CAPTURE(rank);
          CHECK(all.hear(rank, 10) == text);
        }
      }
      all.tell(living.front());
      CHECK(all.wait(living.front()).status == 0);
    }
  }
}

TEST_CASE("a rank dies while the others shrink") {
  std::mt19937 random(11);
  for (int run = 0; run < runs(6); ++run) {
    CAPTURE(run);
    const int size = 5;
    const auto live = [](colls::world& world, const line& test) -> task<> {
      std::vector<float> data(1000);
      test.say("works");
      co_await work(world, data);
      for (;;) {
        colls::world left = co_await world.shrink();
        world = std::move(left);
        bool is_done = true;
        try {
          co_await world.all_reduce(data, colls::maximum{});
        } catch (const colls::error&) {
          is_done = false;
        }
        const colls::agreement all = co_await world.agree(is_done ? 1 : 0);
        if (all.value == 1 && all.lost.empty()) break;
      }
      test.say("left " + std::to_string(world.size()));
      test.hear();
    };
    job all(size, live, over(run % 2 == 0 ? hybrid() : network()));
    REQUIRE(all.all_say("works"));
    all.kill(run % size);
    ::usleep(static_cast<unsigned>(random() % 6'000));
    all.kill((run + 1) % size);
    std::string first;
    for (int i = 2; i < size; ++i) {
      const std::string said = all.hear((run + i) % size, 10);
      CHECK((said == "left 3" || said == "left 4"));  // the second one may have died after the end
      if (first.empty()) first = said;
      CHECK(said == first);
    }
  }
}

TEST_CASE("a stopped rank is late, not lost: shrink times out and names it, and then succeeds") {
  const int size = 3;
  const auto live = [](colls::world& world, const line& test) -> task<> {
    test.say("works");
    test.hear();
    bool is_late = false;
    try {
      auto shrinking = world.shrink({.timeout = std::chrono::seconds(1)});
      const colls::world left = co_await shrinking;
      test.say("shrunk to " + std::to_string(left.size()));
    } catch (const colls::error& thrown) {
      test.say(std::string(thrown.code().message()) + " of rank " +
               std::to_string(thrown.record().culprit));
      is_late = true;
    }
    if (is_late) {
      const colls::world left = co_await world.shrink();
      test.say("shrunk to " + std::to_string(left.size()));
    }
    test.hear();
  };
  job all(size, live);
  REQUIRE(all.all_say("works"));
  all.stop(1);
  for (const int rank : {0, 2}) all.tell(rank);
  for (const int rank : {0, 2}) CHECK(all.hear(rank) == "timeout of rank 1");
  all.go_on(1);
  all.tell(1);
  for (int rank = 0; rank < size; ++rank) CHECK(all.hear(rank) == "shrunk to 3");
}

TEST_CASE("communicators without the lost rank go on, and those with it are shrunk on their own") {
  const int size = 6;
  const auto live = [](colls::world& world, const line& test) -> task<> {
    // Ranks 0, 2, 4 and ranks 1, 3, 5; neighbours 0 1, 2 3, 4 5.
    auto half = co_await world.split(world.rank() % 2);
    auto pair = co_await world.split(world.rank() / 2);
    std::vector<int> data(100, 1);
    test.say("works");
    test.hear();
    const bool has_victim = world.rank() % 2 == 1;
    if (has_victim) {
      auto left = co_await half.shrink();
      half = std::move(left);
    }
    for (int step = 0; step < 100; ++step) co_await half.all_reduce(data, colls::maximum{});
    if (world.rank() == 2) {
      auto alone = co_await pair.shrink();
      pair = std::move(alone);
    }
    co_await pair.all_reduce(data, colls::maximum{});
    const colls::world left = co_await world.shrink();
    test.say("half " + std::to_string(half.size()) + " pair " + std::to_string(pair.size()) +
             " world " + std::to_string(left.size()));
    test.hear();
  };
  for (const char* const transport : transports()) {
    job all(size, live, over(transport));
    REQUIRE(all.all_say("works"));
    all.kill(3);
    for (int rank = 0; rank < size; ++rank) {
      if (rank != 3) all.tell(rank);
    }
    for (int rank = 0; rank < size; ++rank) {
      if (rank == 3) continue;
      CAPTURE(rank);
      const std::string half = rank % 2 == 1 ? "half 2" : "half 3";
      CHECK(all.hear(rank) == half + (rank == 2 ? " pair 1" : " pair 2") + " world 5");
    }
  }
}

TEST_CASE("a rank that closes only a part of the world stays in the world") {
  const int size = 4;
  const auto live = [](colls::world& world, const line& test) -> task<> {
    auto part = co_await world.split(world.rank() < 3 ? 0 : -1);
    auto other = co_await world.dup();
    std::vector<int> data(100, 1);
    co_await world.all_reduce(data, colls::maximum{});
    test.say("works");
    if (world.rank() == 1) {
      auto closing = part.close();
      co_await closing;
    } else if (part) {
      const colls::world left = co_await part.shrink();
      test.say("left " + std::to_string(left.size()));
    }
    for (int step = 0; step < 200; ++step) co_await world.all_reduce(data, colls::maximum{});
    if (world.rank() == 1) co_await world.send(data, 0);
    if (world.rank() == 0) co_await world.recv(data, 1);
    co_await other.all_reduce(data, colls::maximum{});
    test.say("good");
    test.hear();
  };
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(size, live, over(transport));
    REQUIRE(all.all_say("works"));
    for (const int rank : {0, 2}) CHECK(all.hear(rank) == "left 2");
    CHECK(all.all_say("good"));
  }
}

}  // namespace
