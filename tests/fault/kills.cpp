// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// kill -9 of any rank at any moment: every other rank ends by an error that names it, in time.

#include <colls/colls.hpp>
#include <colls/rendezvous/join.hpp>
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

namespace {

using colls::task;

constexpr int named_the_victim = 42;
constexpr int named_another = 43;
constexpr int went_on = 44;

/// Collectives without end, small and large, until one fails.
task<> work(colls::world& world, std::size_t count) {
  std::vector<float> data(count, 1);
  std::vector<float> all(count * static_cast<std::size_t>(world.size()));
  for (;;) {
    co_await world.all_reduce(data);
    co_await world.barrier();
    co_await world.all_gather(data, all);
    co_await world.broadcast(data, 1 % world.size());
    std::fill(data.begin(), data.end(), 1.F);
  }
}

int live(const colls::config& how, std::size_t count, int victim, int ready) {
  boost::asio::io_context context(1);
  const auto on = colls::engine::of(context.get_executor());
  colls::world world = colls::sync_wait(*on, colls::join(context.get_executor(), how));
  [[maybe_unused]] const auto told = ::write(ready, "r", 1);
  try {
    colls::sync_wait(*on, work(world, count));
  } catch (const colls::error& thrown) {
    const colls::failure& why = thrown.record();
    if (why.code != colls::errc::peer_failed || why.culprit != victim) {
      std::fprintf(stderr, "%s\n", thrown.what());
    }
    return why.culprit == victim ? named_the_victim : named_another;
  }
  return went_on;
}

struct outcome {
  int wrong = 0;
  double slowest = 0;
};

/// Starts `size` processes, kills one `delay_us` after all have joined, and waits for the others.
outcome kill_one(int size, int victim, std::size_t count, unsigned delay_us) {
  colls::listener door;
  REQUIRE(!door.listen({boost::asio::ip::make_address("127.0.0.1"), 0}));
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(ready[0]);
      colls::config how;
      how.rank = rank;
      how.size = size;
      how.address = "tcp://127.0.0.1:" + std::to_string(door.local().port());
      if (rank == 0) how.store_fd = door.descriptor();
      int status = 1;
      try {
        status = live(how, count, victim, ready[1]);
      } catch (const std::exception& thrown) {
        std::fprintf(stderr, "rank %d: %s\n", rank, thrown.what());
      }
      ::_exit(status);
    }
    children.push_back(child);
  }
  door.close();
  ::close(ready[1]);
  char token = 0;
  for (int i = 0; i < size; ++i) REQUIRE(::read(ready[0], &token, 1) == 1);
  ::close(ready[0]);
  ::usleep(delay_us);
  const auto now = [] {
    timespec clock{};
    ::clock_gettime(CLOCK_MONOTONIC, &clock);
    return static_cast<double>(clock.tv_sec) + static_cast<double>(clock.tv_nsec) * 1e-9;
  };
  const double begin = now();
  ::kill(children[static_cast<std::size_t>(victim)], SIGKILL);
  outcome seen;
  for (int rank = 0; rank < size; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<std::size_t>(rank)], &status, 0);
    if (rank == victim) continue;
    const bool right = WIFEXITED(status) && WEXITSTATUS(status) == named_the_victim;
    if (!right) {
      ++seen.wrong;
      MESSAGE("rank ", rank, " ended with status ", status);
    }
  }
  seen.slowest = now() - begin;
  return seen;
}

}  // namespace

TEST_CASE("kill -9 of any rank at any moment ends all others, and they name it") {
  std::mt19937 random(20261121);
  double slowest = 0;
  for (int round = 0; round < 24; ++round) {
    const int size = 2 + static_cast<int>(random() % 4);
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const std::size_t count = round % 3 == 0 ? 300'000 : 1 + random() % 5000;
    const unsigned delay = static_cast<unsigned>(random() % 30'000);
    CAPTURE(size);
    CAPTURE(victim);
    CAPTURE(count);
    CAPTURE(delay);
    const outcome seen = kill_one(size, victim, count, delay);
    CHECK(seen.wrong == 0);
    slowest = std::max(slowest, seen.slowest);
  }
  MESSAGE("slowest: ", slowest, " s");
  // The contract promises 2 s on loopback.
  CHECK(slowest < 10);
}
