// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// A rank whose program ends well has left. That is no failure for ranks that go on without it, and
// `closed` for ranks that need it.

#include "processes.hpp"

using namespace processes;
using colls::errc;

namespace {

/// Returns the world without `leaver`, with which the others go on.
task<colls::world> others_of(colls::world& world, int leaver) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size(); ++rank) {
    if (rank != leaver) ranks.push_back(rank);
  }
  co_return co_await world.group(ranks);
}

task<> go_on(colls::world& others) {
  for (int i = 0; i < 100; ++i) {
    std::vector<int> data(i % 10 == 0 ? 100'000 : 10, 1);
    co_await others.all_reduce(data);
    if (data.back() != others.size()) throw std::runtime_error("a wrong sum");
    std::vector<int> all(10 * static_cast<std::size_t>(others.size()), others.rank());
    co_await others.all_to_all(all, all);
    if (all[10] != 1) throw std::runtime_error("a wrong block");
  }
}

}  // namespace

TEST_CASE("one rank leaves, the others go on, and a rank that needs it gets `closed`") {
  for (const int leaver : {0, 1, 3}) {
    for (const bool connected : {true, false}) {
      CAPTURE(leaver);
      CAPTURE(connected);
      job all(4, [=](colls::world& world, const line& test) -> task<> {
        colls::world others = co_await others_of(world, leaver);
        if (connected) {
          std::vector<int> blocks(4);
          co_await world.all_to_all(blocks, blocks);
        }
        if (world.rank() == leaver) co_return;
        if (!connected) test.hear();
        co_await go_on(others);
        test.say("went on");
        // Not all ranks need it at the same time.
        const auto nap = world.rank() * 20 * colls::milliseconds;
        co_await world.net().driver().sleep_until(world.net().now() + nap);
        co_await world.barrier();
      });
      CHECK(all.leaves(leaver));
      for (int rank = 0; rank < 4; ++rank) {
        if (rank != leaver && !connected) all.tell(rank);
      }
      for (int rank = 0; rank < 4; ++rank) {
        CAPTURE(rank);
        if (rank == leaver) continue;
        CHECK(all.hear(rank) == "went on");
        const ending& end = all.wait(rank);
        CAPTURE(end.message);
        CHECK(end.code == errc::closed);
        CHECK(end.culprit == leaver);
        CHECK(contains(all.log(rank), "closed: rank " + std::to_string(leaver)));
      }
      CHECK(all.wait(leaver).status == 0);
      CHECK(all.log(leaver) == "");
    }
  }
}

TEST_CASE("a message to or from a rank that has left fails, and no rank waits") {
  for (const int leaver : {0, 1}) {
    for (const bool sends : {true, false}) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{1} << 20}) {
        CAPTURE(leaver);
        CAPTURE(sends);
        CAPTURE(count);
        job all(2, [=](colls::world& world, const line& test) -> task<> {
          co_await world.barrier();
          if (world.rank() == leaver) co_return;
          test.hear();
          std::vector<int> data(count);
          if (!sends) {
            (void)co_await world.recv(data, leaver);
          } else {
            // A message is lost if the system takes it before it reports that the socket is closed.
            for (int i = 0; i < 3; ++i) {
              co_await world.send(data, leaver);
              co_await world.net().driver().sleep_until(world.net().now() +
                                                        20 * colls::milliseconds);
            }
          }
        });
        CHECK(all.leaves(leaver));
        all.tell(1 - leaver);
        const ending& end = all.wait(1 - leaver);
        CAPTURE(end.message);
        CHECK(end.code == errc::closed);
        CHECK(end.culprit == leaver);
        CHECK(all.wait(leaver).status == 0);
      }
    }
  }
}

TEST_CASE("what a rank sent before it left arrives, however late it is wanted") {
  constexpr std::size_t long_message = 4 << 20;
  job all(3, [=](colls::world& world, const line& test) -> task<> {
    std::vector<int> blocks(3);
    co_await world.all_to_all<colls::algorithm::linear>(blocks, blocks);  // opens all connections
    std::vector<int> data(long_message, world.rank());
    const std::span<int> words(data.data(), 1000);
    if (world.rank() == 2) {
      for (int i = 0; i < 10; ++i) co_await world.send(words, 0, 1);
      for (int i = 0; i < 10; ++i) co_await world.send(words, 1, 1);
      co_await world.send(data, 1, 2);
      co_return;
    }
    if (world.rank() == 1) {
      (void)co_await world.recv(data, 2, 2);
      if (data.back() != 2) test.say("wrong");
    }
    test.hear();
    int sum = 0;
    for (int i = 0; i < 10; ++i) {
      words[999] = -1;
      (void)co_await world.recv(words, colls::any_source, 1);
      sum += words[999];
    }
    test.say("sum " + std::to_string(sum));
  });
  CHECK(all.leaves(2));
  for (const int rank : {0, 1}) {
    all.tell(rank);
    CHECK(all.hear(rank) == "sum 20");
  }
  for (int rank = 0; rank < 3; ++rank) {
    const ending& end = all.wait(rank);
    CAPTURE(rank);
    CAPTURE(end.message);
    CHECK(end.status == 0);
  }
}

TEST_CASE("ranks end one after another, and none logs anything") {
  for (const bool rank_0_first : {true, false}) {
    job all(4, [=](colls::world& world, const line& test) -> task<> {
      std::vector<int> data(1000, 1);
      co_await world.all_reduce(data);
      test.hear();
    });
    for (int turn = 0; turn < 4; ++turn) {
      const int rank = rank_0_first ? turn : 3 - turn;
      all.tell(rank);
      CHECK(all.leaves(rank));
    }
    for (int rank = 0; rank < 4; ++rank) {
      CHECK(all.wait(rank).status == 0);
      CHECK(all.log(rank) == "");
    }
  }
}

TEST_CASE("under LeakSanitizer the process of a rank that has lost memory ends with that status") {
  const auto lose = [] {
    [[maybe_unused]] static int* volatile kept = nullptr;
    for (int i = 0; i < 10; ++i) kept = new int[100];
  };
  for (const bool loses : {false, true}) {
    CAPTURE(loses);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::close(STDERR_FILENO);
      if (loses) lose();
      leave(0);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == (loses && !frees_memory ? has_leaked : 0));
  }
}
