// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Agreements of processes, some of which are killed or stopped.

#include "processes.hpp"

#include <csignal>
#include <random>

using namespace processes;
using colls::agreement;
using colls::errc;

namespace {

std::uint64_t value_of(int rank) { return ~(std::uint64_t{1} << rank); }

std::string text_of(const agreement& each) {
  std::string text = "value " + std::to_string(each.value);
  for (const colls::lost_rank& lost : each.lost) {
    text += " lost " + std::to_string(lost.rank) + (lost.proved ? " proved" : " suspected");
  }
  return text;
}
/// The result if exactly `lost` are lost.
std::string expected(int size, const std::vector<int>& lost) {
  agreement result{~std::uint64_t{0}, {}};
  for (int rank = 0; rank < size; ++rank) {
    if (std::find(lost.begin(), lost.end(), rank) != lost.end()) {
      result.lost.push_back({rank, true});
    } else {
      result.value &= value_of(rank);
    }
  }
  return text_of(result);
}

/// Calls collectives until one fails, and then agrees.
task<> work_and_agree(colls::world& world, const line& test) {
  std::vector<float> data(1000, 1);
  test.say("works");
  try {
    for (;;) co_await world.all_reduce(data);
  } catch (const colls::error&) {
  }
  const agreement result = co_await world.agree(value_of(world.rank()));
  test.say(text_of(result));
  test.hear();
}

TEST_CASE("the other ranks agree at once when ranks are killed, rank 0 among them") {
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    for (const std::vector<int>& victims :
         std::vector<std::vector<int>>{{3}, {0}, {1, 2}, {0, 1, 2, 3}}) {
      const int size = 5;
      job all(size, work_and_agree, over(transport));
      REQUIRE(all.all_say("works"));
      const double killed_at = now();
      // Stopped first, no victim notices that another one has ended.
      for (const int victim : victims) all.stop(victim);
      for (const int victim : victims) all.kill(victim);
      for (int rank = 0; rank < size; ++rank) {
        if (std::find(victims.begin(), victims.end(), rank) != victims.end()) continue;
        CAPTURE(rank);
        CHECK(all.hear(rank, 10) == expected(size, victims));
        CHECK(now() - killed_at < 5);
      }
    }
  }
}

TEST_CASE("ranks that are killed at random moments of agreements: the others have equal results") {
  std::mt19937 random(7);
  for (int run = 0; run < runs(6); ++run) {
    CAPTURE(run);
    const int size = 4;
    const auto agree_often = [](colls::world& world, const line& test) -> task<> {
      test.say("works");
      agreement last;
      int number = 0;
      while (last.lost.empty()) {
        last = co_await world.agree(value_of(world.rank()));
        ++number;
      }
      test.say(std::to_string(number) + ": " + text_of(last));
      test.hear();
    };
    job all(size, agree_often, over(run % 2 == 0 ? hybrid() : network()));
    REQUIRE(all.all_say("works"));
    ::usleep(static_cast<unsigned>(random() % 20000));
    const int victim = static_cast<int>(random() % size);
    all.kill(victim);
    std::string first;
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const std::string said = all.hear(rank, 10);
      CAPTURE(said);
      CAPTURE(victim);
      CHECK(said.find(": " + expected(size, {victim})) != said.npos);
      if (first.empty()) first = said;
      CHECK(said == first);
    }
  }
}

TEST_CASE("a stopped rank is late, not lost: the agreement times out and names it") {
  const int size = 3;
  const auto agree_twice = [](colls::world& world, const line& test) -> task<> {
    test.say("works");
    test.hear();
    try {
      auto late = world.agree(1, {.timeout = std::chrono::seconds(1)});
      co_await late;
      test.say("agreed");
    } catch (const colls::error& thrown) {
      test.say(std::string(thrown.code().message()) + " of rank " +
               std::to_string(thrown.record().culprit));
    }
    const agreement result = co_await world.agree(1);
    test.say(text_of(result));
    test.hear();
  };
  job all(size, agree_twice);
  REQUIRE(all.all_say("works"));
  all.stop(1);
  for (const int rank : {0, 2}) all.tell(rank);
  for (const int rank : {0, 2}) CHECK(all.hear(rank) == "timeout of rank 1");
  all.go_on(1);
  all.tell(1);
  CHECK(all.hear(1) == "agreed");
  for (const int rank : {0, 2}) CHECK(all.hear(rank) == "value 1");
}

TEST_CASE("ranks do not wait for one that has its result and computes") {
  const int size = 4;
  const auto live = [](colls::world& world, const line& test) -> task<> {
    co_await world.agree(1);  // opens the connections
    test.say("works");
    // Each rank in turn calls last, and polls no more when it has the result.
    for (int last = 0; last < world.size(); ++last) {
      if (world.rank() == last) ::usleep(200'000);
      const double called_at = now();
      co_await world.agree(1);
      const double waited = now() - called_at;
      if (world.rank() == last) ::usleep(1'500'000);
      test.say(waited < 1 ? "soon" : "late");
      co_await world.barrier();
    }
    test.hear();
  };
  for (const char* const transport : transports()) {
    CAPTURE(std::string(transport));
    job all(size, live, over(transport));
    REQUIRE(all.all_say("works"));
    for (int last = 0; last < size; ++last) CHECK(all.all_say("soon"));
  }
}

}  // namespace
