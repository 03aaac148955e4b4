// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Agreements on simulated networks: ranks that die at every event of an agreement, alone and in
// pairs; links that are cut, hosts that are isolated and ranks that freeze, by seeds.
//
// COLLS_TEST_FULL=1 runs more seeds, COLLS_SIM_SEEDS=N runs N.

#include "fault_trial.hpp"

#include <set>
#include <string>

namespace {

using colls::agreement;
using colls::errc;
constexpr int calls = 2;  // of each rank

std::uint64_t value_of(int rank, int call) { return ~(std::uint64_t{1} << (8 * call + rank)); }

struct agreements {
  std::vector<agreement> made;
  errc failed{};  // of the call that ended with an error
  int culprit = -1;
};
using trial = fault_trial<agreements>;

/// Makes two agreements, one after the other.
colls::task<> agree_twice(communicator& comm, agreements& result) {
  try {
    for (int call = 0; call < calls; ++call) {
      auto agreed = comm.agree(value_of(comm.rank(), call));
      result.made.push_back(co_await agreed);
    }
  } catch (const colls::error& failed) {
    result.failed = failed.record().code;
    result.culprit = failed.record().culprit;
  }
}

std::string text_of(const agreement& each) {
  std::string text = std::to_string(each.value);
  for (const colls::lost_rank& lost : each.lost) {
    text += (lost.proved ? " !" : " ?") + std::to_string(lost.rank);
  }
  return text;
}

/// Checks that the living ranks have equal results, and that the value is that of the ranks that
/// are not lost. Adds the results to `distinct`.
void check_results(const trial& all, std::set<std::string>& distinct) {
  REQUIRE_FALSE(all.hangs());
  for (int call = 0; call < calls; ++call) {
    const agreement* first = nullptr;
    for (int rank = 0; rank < all.size(); ++rank) {
      const auto& outcome = all[rank];
      if (outcome.was_killed || std::ssize(outcome.made) <= call) continue;
      const agreement& own = outcome.made[static_cast<std::size_t>(call)];
      if (first == nullptr) {
        first = &own;
        distinct.insert(std::to_string(call) + ": " + text_of(own));
      }
      REQUIRE(own.value == first->value);
      REQUIRE(own.lost == first->lost);
      std::uint64_t value = ~std::uint64_t{0};
      for (int other = 0; other < all.size(); ++other) {
        const auto is_other = [=](const colls::lost_rank& lost) { return lost.rank == other; };
        const bool is_lost = std::any_of(own.lost.begin(), own.lost.end(), is_other);
        if (!is_lost) value &= value_of(other, call);
        REQUIRE_FALSE((is_lost && other == rank));
      }
      REQUIRE(own.value == value);
    }
  }
}

/// Checks that each living rank has made all its agreements, and that only killed ranks are lost.
void check_kills(const trial& all, std::set<std::string>& distinct) {
  check_results(all, distinct);
  for (int rank = 0; rank < all.size(); ++rank) {
    if (all[rank].was_killed) continue;
    REQUIRE(std::ssize(all[rank].made) == calls);
    for (const agreement& each : all[rank].made) {
      for (const colls::lost_rank& lost : each.lost) {
        REQUIRE(all[lost.rank].was_killed);
        REQUIRE(lost.proved);
      }
    }
  }
}

/// Checks the number of messages and of rounds of one agreement without losses. A pass goes up the
/// tree or down.
void check_costs(colls::simulated_world& world, std::uint32_t passes) {
  const int size = world.size();
  CAPTURE(size);
  std::vector<communicator> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(colls::simulated::join(world, rank));
  std::vector<colls::operation<agreement>> started;
  for (communicator& each : all) started.push_back(each.agree(7));
  REQUIRE(world.run_until([&] { return world.is_quiescent(); }));
  for (auto& each : started) REQUIRE(each.result().value == 7);
  std::uint32_t depth = 0;
  while (2 << depth <= size) ++depth;
  CHECK(world.messages() == passes * (static_cast<std::uint64_t>(size) - 1));
  CHECK(world.rounds() == passes * depth);
}

TEST_CASE("without losses: at most 2(p-1) messages and twice the depth of the tree in rounds") {
  for (const int size : {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 1000, 4096, 65'536}) {
    colls::simulated_world world(size);
    check_costs(world, 2);
  }
}

TEST_CASE("where losses may be suspected: twice the messages and rounds") {
  colls::simulated_world::settings config;
  fault cut;
  cut.type = fault::kind::cut;
  cut.rank = 0;
  cut.peer = 1;
  cut.event = 1'000'000;  // never
  config.plan.faults.push_back(cut);
  for (int size = 2; size <= 17; ++size) {
    colls::simulated_world world(size, config);
    check_costs(world, 4);
  }
}

TEST_CASE("a rank dies at every event, and a second one at every event of what follows") {
  std::set<std::string> distinct;
  const auto check = [&](const trial& all) { check_kills(all, distinct); };
  const kill_counts counts = try_kills<agreements>(2, 5, agree_twice, check);
  MESSAGE(counts.runs, " runs, ", distinct.size(), " distinct decisions, ", counts.both,
          " runs with both deaths inside the agreements");
  CHECK(counts.both > 1000);
}

/// What the ranks of several runs had in the end.
struct summary {
  std::set<std::string> distinct;
  int decided = 0;
  int ended = 0;
};

/// Runs agreements while faults happen that `seed` draws.
void check_seed(unsigned seed, summary& sum) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int size = 2 + static_cast<int>(random() % 6);
  const fault_plan plan = draw_faults(random, size);
  CAPTURE(plan.text());
  const trial all(size, settings_of(latencies()[random() % 3], plan), agree_twice);
  check_results(all, sum.distinct);
  for (int rank = 0; rank < size; ++rank) {
    if (all[rank].was_killed) continue;
    ++sum.ended;
    const errc code = all[rank].failed;
    sum.decided += code == errc{} ? 1 : 0;
    CAPTURE(rank);
    CAPTURE(static_cast<int>(code));
    CAPTURE(all[rank].culprit);
    // No rank waits until its deadline: each finds out that others are lost, or that it is.
    CHECK((code == errc{} || code == errc::no_quorum || code == errc::excluded));
  }
}

TEST_CASE("cut links, isolated hosts and frozen ranks: no two results, and every call ends") {
  const unsigned seeds = seed_count(2'000, 200'000);
  summary sum;
  for (unsigned seed = 0; seed < seeds; ++seed) check_seed(seed, sum);
  // Seeds that have found errors.
  for (const unsigned seed : {9108u, 10404u, 39078u, 56758u}) check_seed(seed, sum);
  MESSAGE(sum.decided, " of ", sum.ended, " ranks have both results, ", sum.distinct.size(),
          " distinct decisions");
  CHECK(sum.decided > sum.ended / 4);
}

}  // namespace
