// SPDX-FileCopyrightText: 2026 The colls authors SPDX-License-Identifier: BSL-1.0 Ranks that go on
// with what is left, on simulated networks: ranks that die at every event, alone and in pairs;
// links that are cut, hosts that are isolated and ranks that freeze, by seeds.
//
// COLLS_TEST_FULL=1 runs more seeds, COLLS_SIM_SEEDS=N runs N.

#include "fault_trial.hpp"

#include <bit>
#include <list>
#include <numeric>
#include <set>
#include <string>

namespace {

using colls::errc;

constexpr int max_rounds = 8;  // more than any run needs

std::uint32_t bit(int rank) { return std::uint32_t{1} << rank; }

struct survival {
  std::vector<std::uint32_t> sets;  // the world ranks of each communicator that shrink has made
  std::vector<std::uint64_t> sums;  // of the sets on which an all_reduce succeeded
  errc failed{};                    // with which the program ended
  int world_rank = -1;
};
using trial = fault_trial<survival>;

/// Agrees whether all ranks have finished the work. A rank that still waits in the work is late, so
/// the call is repeated until the work of that rank has failed.
colls::task<colls::agreement> agree_on_end(communicator& comm, bool is_done) {
  for (int attempt = 0;; ++attempt) {
    try {
      auto agreeing = comm.agree(is_done ? 1 : 0);
      co_return co_await agreeing;
    } catch (const colls::error& failed) {
      if (failed.record().code != errc::timeout || attempt == 2) throw;
    }
  }
}

/// One step of the work: returns the sum of the `own` of all ranks.
using work_step = colls::task<std::uint32_t> (*)(communicator& comm, std::uint32_t own);

colls::task<std::uint32_t> reduce(communicator& comm, std::uint32_t own) {
  std::uint32_t data[2] = {own, 1};
  co_await comm.all_reduce(data);
  co_return data[0];
}
/// Uses each link in both directions.
colls::task<std::uint32_t> exchange(communicator& comm, std::uint32_t own) {
  const auto size = static_cast<std::size_t>(comm.size());
  const std::vector<std::uint32_t> in(size, own);
  std::vector<std::uint32_t> out(size);
  co_await comm.all_to_all<colls::algorithm::pairwise>(in, out);
  co_return std::accumulate(out.begin(), out.end(), std::uint32_t{0});
}

/// Works on `world`, and goes on with what is left until all ranks of that have finished the work.
colls::task<> go_on_by(communicator& world, survival& result, work_step work) {
  result.world_rank = world.rank();
  std::list<communicator> made;
  communicator* current = &world;
  std::vector<int> members;
  for (int rank = 0; rank < world.size(); ++rank) members.push_back(rank);
  try {
    for (int round = 0; round < max_rounds; ++round) {
      std::uint32_t sum = 0;
      bool is_done = false;
      try {
        auto working = work(*current, bit(world.rank()));
        sum = co_await working;
        is_done = true;
      } catch (const colls::error&) {
      }
      auto agreeing = agree_on_end(*current, is_done);
      const colls::agreement all = co_await agreeing;
      if (all.value == 1 && all.lost.empty()) {
        result.sums.push_back(sum);
        break;
      }
      auto shrinking = current->shrink();
      made.push_back(co_await shrinking);
      communicator& left = made.back();
      std::vector<int> next;
      std::uint32_t set = 0;
      for (int rank = 0; rank < left.size(); ++rank) {
        next.push_back(members[static_cast<std::size_t>(left.previous_rank(rank))]);
        set |= bit(next.back());
      }
      if (next[static_cast<std::size_t>(left.rank())] != world.rank())
        throw std::logic_error("rank");
      members = next;
      result.sets.push_back(set);
      current = &left;
    }
  } catch (const colls::error& failed) {
    result.failed = failed.record().code;
  }
}
colls::task<> go_on(communicator& world, survival& result) {
  return go_on_by(world, result, &reduce);
}
colls::task<> go_on_over_all_links(communicator& world, survival& result) {
  return go_on_by(world, result, &exchange);
}

std::string text_of(const std::vector<std::uint32_t>& sets) {
  std::string text;
  for (const std::uint32_t set : sets) text += std::to_string(set) + " ";
  return text;
}

/// Checks that the ranks that live on have made the same communicators, one after the other, as far
/// as they got.
void check_sets(const trial& all, std::set<std::string>& distinct) {
  REQUIRE_FALSE(all.hangs());
  const std::vector<std::uint32_t>* longest = nullptr;
  for (int rank = 0; rank < all.size(); ++rank) {
    if (all[rank].was_killed) continue;
    if (longest == nullptr || all[rank].sets.size() > longest->size()) longest = &all[rank].sets;
  }
  if (longest == nullptr) return;
  distinct.insert(text_of(*longest));
  for (int rank = 0; rank < all.size(); ++rank) {
    if (all[rank].was_killed) continue;
    const std::vector<std::uint32_t>& own = all[rank].sets;
    REQUIRE(std::equal(own.begin(), own.end(), longest->begin()));
    for (const std::uint32_t set : own) REQUIRE((set & bit(rank)) != 0);
    for (const std::uint64_t sum : all[rank].sums) {
      const std::uint32_t set = own.empty() ? bit(all.size()) - 1 : own.back();
      REQUIRE(sum == set);
    }
  }
}

/// Checks that all ranks that live have finished the work, and that exactly killed ranks are lost.
void check_kills(const trial& all, std::set<std::string>& distinct) {
  check_sets(all, distinct);
  for (int rank = 0; rank < all.size(); ++rank) {
    if (all[rank].was_killed) continue;
    REQUIRE(all[rank].failed == errc{});
    REQUIRE(all[rank].sums.size() == 1);
    for (int other = 0; other < all.size(); ++other) {
      const bool is_left_out = (all[rank].sums[0] & bit(other)) == 0;
      if (is_left_out) REQUIRE(all[other].was_killed);
    }
  }
}

TEST_CASE("a rank dies at every event, and a second one at every event of what follows") {
  std::set<std::string> distinct;
  const auto check = [&](const trial& all) { check_kills(all, distinct); };
  const kill_counts counts = try_kills<survival>(1, is_full() ? 5 : 4, go_on, check);
  MESSAGE(counts.runs, " runs, ", distinct.size(), " distinct sequences of survivors, ",
          counts.both, " runs with both deaths before the end of the work");
  CHECK(counts.both > 1000);
}

/// What the ranks of several runs had in the end.
struct summary {
  std::set<std::string> distinct;
  int finished = 0;
  int ended = 0;
};

void check_seed(unsigned seed, summary& sum) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  const int size = 2 + static_cast<int>(random() % 5);
  const fault_plan plan = draw_faults(random, size);
  CAPTURE(plan.text());
  const trial all(size, settings_of(latencies()[random() % 3], plan), go_on);
  check_sets(all, sum.distinct);
  for (int rank = 0; rank < size; ++rank) {
    if (all[rank].was_killed) continue;
    ++sum.ended;
    const errc code = all[rank].failed;
    sum.finished += code == errc{} ? 1 : 0;
    CAPTURE(rank);
    CAPTURE(static_cast<int>(code));
    CHECK((code == errc{} || code == errc::no_quorum || code == errc::excluded));
    if (code == errc{}) CHECK(all[rank].sums.size() == 1);
  }
}

TEST_CASE(
    "cut links, isolated hosts and frozen ranks: no two sets of survivors, and every call ends") {
  const unsigned seeds = seed_count(1'000, 100'000);
  summary sum;
  for (unsigned seed = 0; seed < seeds; ++seed) check_seed(seed, sum);
  MESSAGE(sum.finished, " of ", sum.ended, " ranks have finished, ", sum.distinct.size(),
          " distinct sequences of survivors");
  CHECK(sum.finished > sum.ended / 4);
}

/// The cut of one link, in one direction or in both.
using link = std::pair<int, int>;
std::vector<fault> cuts_of(int size) {
  std::vector<fault> all;
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      fault cut;
      cut.event = 1;
      cut.type = fault::kind::cut;
      for (const link& way : {link(low, high), link(high, low)}) {
        cut.rank = way.first;
        cut.peer = way.second;
        all.push_back(cut);
      }
      cut.type = fault::kind::cut_both;
      all.push_back(cut);
    }
  }
  return all;
}

/// Returns the set of ranks that the rule leaves of `set`, if exactly these links are known to be
/// broken and do not divide the set: as long as a link is broken, the rank with the most broken
/// links goes, among equals the highest.
std::uint32_t left_by_rule(std::uint32_t set, std::vector<fault> broken) {
  for (;;) {
    std::erase_if(broken, [&](const fault& cut) {
      return (set & bit(cut.rank)) == 0 || (set & bit(cut.peer)) == 0;
    });
    if (broken.empty()) return set;
    const auto count = [&](int rank) {
      return std::count_if(broken.begin(), broken.end(),
                           [&](const fault& cut) { return cut.rank == rank || cut.peer == rank; });
    };
    int worst = 0;
    for (int rank = 0; rank < 32; ++rank) {
      if (count(rank) >= count(worst)) worst = rank;
    }
    set &= ~bit(worst);
  }
}

/// Checks each shrink of each rank: the rule has left these ranks, for one or both of the cut
/// links, and they are more than half. The agreement before the shrink may have left out a rank
/// already. All links of the ranks that have finished the work are intact.
int check_cuts(const trial& all, const std::vector<fault>& cuts) {
  std::set<std::string> ignored;
  check_sets(all, ignored);
  std::vector<std::vector<fault>> known{cuts};
  if (cuts.size() == 2) known.insert(known.end(), {{cuts[0]}, {cuts[1]}});
  int finished = 0;
  for (int rank = 0; rank < all.size(); ++rank) {
    CAPTURE(rank);
    std::uint32_t before = bit(all.size()) - 1;
    for (const std::uint32_t set : all[rank].sets) {
      CAPTURE(text_of(all[rank].sets));
      std::set<std::uint32_t> possible;
      for (const auto& agreed : known) {
        const std::uint32_t left = left_by_rule(before, agreed);
        for (const auto& shrunk : known) possible.insert(left_by_rule(left, shrunk));
      }
      REQUIRE(possible.contains(set));
      REQUIRE(set != before);
      REQUIRE(2 * std::popcount(set) > std::popcount(before));
      before = set;
    }
    const errc code = all[rank].failed;
    REQUIRE((code == errc{} || code == errc::no_quorum || code == errc::excluded));
    if (code != errc{}) continue;
    ++finished;
    for (const fault& cut : cuts) {
      REQUIRE(((before & bit(cut.rank)) == 0 || (before & bit(cut.peer)) == 0));
    }
  }
  return finished;
}

TEST_CASE("every cut link and every pair of them: the ranks of the rule go on") {
  int runs = 0;
  const auto run = [&](int size, const latency& set, const std::vector<fault>& cuts) {
    fault_plan plan;
    plan.faults = cuts;
    CAPTURE(size);
    CAPTURE(plan.text());
    const trial all(size, settings_of(set, plan), go_on_over_all_links);
    const int finished = check_cuts(all, cuts);
    ++runs;
    // Of 2 ranks, and of 4 of which two pairs are cut, half may be left.
    const std::uint32_t left = left_by_rule(bit(size) - 1, cuts);
    if (2 * std::popcount(left) > size) CHECK(finished > size / 2);
    if (cuts.size() == 1) CHECK(finished == (size == 2 ? 0 : size - 1));
  };
  for (int size = 2; size <= 5; ++size) {
    const std::vector<fault> cuts = cuts_of(size);
    for (const latency& set : latencies()) {
      for (std::size_t first = 0; first < cuts.size(); ++first) {
        run(size, set, {cuts[first]});
        // The three cuts of one link follow one another.
        for (std::size_t second = first / 3 * 3 + 3; second < cuts.size(); ++second) {
          run(size, set, {cuts[first], cuts[second]});
        }
      }
    }
  }
  MESSAGE(runs, " runs");
}

struct pair_of_ranks {
  bool has_lost_world = false;
  bool is_good = false;
};

/// Works on the world until it fails, and then on a communicator of ranks 0 and 2.
colls::task<> work_in_pairs(communicator& world, pair_of_ranks& result) {
  std::uint32_t data = 1;
  communicator pair = co_await world.split(world.rank() == 1 ? 1 : 0);
  try {
    for (int step = 0; step < 100; ++step) co_await world.all_reduce(std::span(&data, 1));
  } catch (const colls::error&) {
    result.has_lost_world = true;
  }
  try {
    for (int step = 0; step < 100; ++step) co_await pair.all_reduce(std::span(&data, 1));
    result.is_good = true;
  } catch (const colls::error&) {
  }
}

TEST_CASE("a communicator goes on although a rank outside suspects one of its ranks") {
  int cuts = 0;
  for (std::uint64_t event = 10; event < 60; ++event) {
    CAPTURE(event);
    fault cut;
    cut.type = fault::kind::cut_both;
    cut.rank = 0;
    cut.peer = 1;
    cut.event = event;
    fault_plan plan;
    plan.faults = {cut};
    const fault_trial<pair_of_ranks> all(3, settings_of(latencies()[0], plan), work_in_pairs);
    REQUIRE_FALSE(all.hangs());
    if (!all[2].has_lost_world) continue;
    ++cuts;
    for (const int rank : {0, 2}) CHECK(all[rank].is_good);
  }
  CHECK(cuts > 10);
}

}  // namespace
