// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The scenarios by which MPI's ULFM tests that ranks go on after a failure, in processes:
//
//   errors are returned         "calls that need a lost rank end with an error that names it"
//   an error handler runs       the same: `co_await` throws
//   a receive from any rank     "a receive from any rank ends when a rank dies"
//   insulation                  "a communicator without the lost rank goes on"
//   lost ranks are acknowledged "the ranks agree which ranks are lost"
//   revoke                      "one rank revokes, and the calls of all ranks end"
//   revoke and shrink, often    "a communicator is revoked and shrunk a hundred times"
//   kills until one is left     fault/shrinks.cpp "ranks are killed one after the other ..."
//   agree                       fault/agreements.cpp
//   agree with deaths           sim/agreements.cpp, at every event
//   lost ranks are spawned anew fault/repairs.cpp "a rank that is killed is replaced ..."
//   a death in comm_dup         "a rank dies while others split, duplicate and close"

#include "processes.hpp"

#include <csignal>
#include <random>

using namespace processes;
using colls::errc;

namespace {

/// The code and the culprit of the error with which `call` ends.
template <class Call>
task<std::string> error_of(Call call) {
  try {
    co_await call;
  } catch (const colls::error& failed) {
    co_return failed.code().message() + " " + std::to_string(failed.record().culprit);
  }
  co_return "none";
}

/// Starts `size` ranks, kills `victim` once all have said "works", and tells the others to go on.
/// Each of these has to say `answer`.
void check_after_kill(int size, int victim, const job::rank_main& live, const std::string& answer) {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(size, live, over(transport));
    REQUIRE(all.all_say("works"));
    all.kill(victim);
    for (int rank = 0; rank < size; ++rank) {
      if (rank != victim) all.tell(rank);
    }
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      CAPTURE(rank);
      CHECK(all.hear(rank, 10) == answer);
      all.tell(rank);
      CHECK(all.wait(rank, 5).status == 0);
    }
  }
}

TEST_CASE("calls that need a lost rank end with an error that names it") {
  const auto live = [](colls::world& world, const line& test) -> task<> {
    int data[] = {1};
    test.say("works");
    test.hear();
    std::string all = co_await error_of(world.all_reduce(data));
    // On a failed communicator every call ends so, with each rank.
    const int peer = world.rank() == 0 ? 3 : 0;
    all += ", " + co_await error_of(world.send(data, peer));
    all += ", " + co_await error_of(world.recv(data, 2));
    all += ", " + co_await error_of(world.barrier());
    test.say(all);
    test.hear();
  };
  check_after_kill(4, 2, live, "peer_failed 2, peer_failed 2, peer_failed 2, peer_failed 2");
}

TEST_CASE("a receive from any rank ends when a rank dies") {
  const auto live = [](colls::world& world, const line& test) -> task<> {
    int data[] = {0};
    auto receiving = world.recv(data, colls::any_source);
    test.say("works");
    test.hear();
    const std::string failed = co_await error_of(std::move(receiving));
    colls::world left = co_await world.shrink();
    // Ranks 1 and 2 send to rank 0 of what is left.
    int sum = 0;
    if (left.rank() == 0) {
      for (int message = 1; message < left.size(); ++message) {
        co_await left.recv(data, colls::any_source);
        sum += data[0];
      }
    } else {
      data[0] = left.rank();
      co_await left.send(data, 0);
    }
    data[0] = sum;
    co_await left.broadcast(data, 0);
    test.say(failed + " sum " + std::to_string(data[0]));
    test.hear();
  };
  check_after_kill(4, 1, live, "peer_failed 1 sum 3");
}

TEST_CASE("a communicator without the lost rank goes on") {
  const auto live = [](colls::world& world, const line& test) -> task<> {
    colls::world others = co_await world.split(world.rank() == 0 ? 1 : 0);
    test.say("works");
    test.hear();
    int data[] = {1};
    const std::string failed = co_await error_of(world.all_reduce(data));
    data[0] = 1;
    for (int step = 0; step < 50; ++step) co_await others.all_reduce(data, colls::maximum{});
    co_await others.all_reduce(data);
    test.say(failed + " sum " + std::to_string(data[0]));
    test.hear();
  };
  check_after_kill(4, 0, live, "peer_failed 0 sum 3");
}

TEST_CASE("the ranks agree which ranks are lost") {
  const auto live = [](colls::world& world, const line& test) -> task<> {
    test.say("works");
    test.hear();
    std::string all;
    // The second agreement lists them, too.
    for (int call = 0; call < 2; ++call) {
      const colls::agreement agreed = co_await world.agree(~(std::uint64_t{1} << world.rank()));
      all += std::to_string(~agreed.value);
      for (const colls::lost_rank& lost : agreed.lost) {
        all += (lost.proved ? " proved " : " suspected ") + std::to_string(lost.rank);
      }
      all += ".";
    }
    test.say(all);
    test.hear();
  };
  check_after_kill(3, 2, live, "3 proved 2.3 proved 2.");
}

TEST_CASE("one rank revokes, and the calls of all ranks end") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    const int size = 4;
    const auto live = [](colls::world& world, const line& test) -> task<> {
      int data[] = {0};
      test.say("works");
      if (world.rank() == 2) {
        test.hear();
        world.revoke("enough");
        test.say("revoked 2");
      } else {
        // Nobody sends.
        test.say(co_await error_of(world.recv(data, (world.rank() + 1) % world.size())));
      }
      colls::world left = co_await world.shrink();
      data[0] = 1;
      co_await left.all_reduce(data);
      test.say("sum " + std::to_string(data[0]));
      test.hear();
    };
    job all(size, live, over(transport));
    REQUIRE(all.all_say("works"));
    all.tell(2);
    for (int rank = 0; rank < size; ++rank) CHECK(all.hear(rank) == "revoked 2");
    CHECK(all.all_say("sum 4"));
  }
}

TEST_CASE("a communicator is revoked and shrunk a hundred times") {
  const auto count_descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    const int size = 4;
    const auto live = [=](colls::world& world, const line& test) -> task<> {
      std::ptrdiff_t after_first = 0;
      // Afterwards all ranks have joined.
      (void)co_await world.agree(1);
      for (int round = 0; round < 100; ++round) {
        std::vector<int> data(1000, 1);
        if (round % world.size() == world.rank()) world.revoke("again");
        const std::string failed = co_await error_of(world.all_reduce(data));
        colls::world left = co_await world.shrink();
        if (left.size() != world.size() || failed == "none") {
          test.say(failed + " and " + std::to_string(left.size()) + " ranks");
          co_return;
        }
        world = std::move(left);
        data.assign(data.size(), 1);
        co_await world.all_reduce(data);
        if (data.front() != world.size() || data.back() != world.size()) co_return;
        // Another rank may revoke as soon as all have their sums.
        const colls::agreement summed = co_await world.agree(1);
        if (!summed.lost.empty()) co_return;
        if (round == 0) after_first = count_descriptors();
      }
      const std::ptrdiff_t more = count_descriptors() - after_first;
      test.say(more == 0 ? "good" : std::to_string(more) + " more descriptors");
      test.hear();
    };
    job all(size, live, over(transport));
    for (int rank = 0; rank < size; ++rank) CHECK(all.hear(rank, 20) == "good");
  }
}

/// Splits, duplicates and closes until a rank is lost.
task<> make_communicators(colls::world& world, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    int data[] = {1};
    colls::world half = co_await world.split(world.rank() % 2);
    colls::world copy = co_await half.dup();
    co_await copy.all_reduce(data);
    auto closing = copy.close();
    co_await closing;
    auto closing_half = half.close();
    co_await closing_half;
  }
}

TEST_CASE("a rank dies while others split, duplicate and close") {
  std::mt19937 random(5);
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    for (int run = 0; run < runs(3); ++run) {
      const int size = 5;
      const auto live = [](colls::world& world, const line& test) -> task<> {
        test.say("works");
        auto first = make_communicators(world, 1'000'000);
        const std::string failed = co_await error_of(std::move(first));
        colls::world left = co_await world.shrink();
        auto second = make_communicators(left, 10);
        const std::string good = co_await error_of(std::move(second));
        test.say(failed + " then " + good + " of " + std::to_string(left.size()));
        test.hear();
      };
      job all(size, live, over(transport));
      REQUIRE(all.all_say("works"));
      ::usleep(static_cast<unsigned>(random() % 20'000));
      const int victim = static_cast<int>(random() % size);
      all.kill(victim);
      const std::string answer = "peer_failed " + std::to_string(victim) + " then none of 4";
      for (int rank = 0; rank < size; ++rank) {
        if (rank == victim) continue;
        CAPTURE(rank);
        CHECK(all.hear(rank, 10) == answer);
      }
    }
  }
}

}  // namespace
