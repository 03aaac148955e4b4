// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Agreements on simulated networks: ranks that die at every event of an agreement, alone and in
// pairs; links that are cut, hosts that are isolated and ranks that freeze, by seeds.
//
// COLLS_TEST_FULL=1 runs more seeds, COLLS_SIM_SEEDS=N runs N.

#include <colls/simulated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using colls::agreement;
using colls::errc;
using colls::simulated::communicator;
using colls::simulated::fault;
using colls::simulated::fault_plan;

constexpr int calls = 2;  // of each rank

bool is_full() { return std::getenv("COLLS_TEST_FULL") != nullptr; }

std::uint64_t value_of(int rank, int call) { return ~(std::uint64_t{1} << (8 * call + rank)); }

/// Ranks that make two agreements, one after the other.
class trial final : colls::simulated_world::fault_handler {
 public:
  struct rank_outcome {
    std::vector<agreement> agreements;
    errc failed{};  // of the call that ended with an error
    int culprit = -1;
    bool has_ended = false;
    bool was_killed = false;
    int good_before_kill = 0;
  };

  trial(int size, const colls::simulated_world::settings& config) : world_(size, config) {
    world_.set_fault_handler(static_cast<fault_handler&>(*this));
    for (int rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<member>());
      members_.back()->comm = colls::simulated::join(world_, rank);
    }
    for (int rank = 0; rank < size; ++rank) {
      member& one = *members_[index(rank)];
      one.done.bind([](colls::completion&) noexcept {},
                    colls::completion(nullptr, &world_[rank].queue()));
      one.program = live(one, rank);
      (void)one.program.start(one.done);
    }
    hangs_ = !world_.run_until([&] { return has_ended(); });
  }
  ~trial() {
    for (const auto& each : members_) {
      each->done.withdraw();
      each->program = {};
      each->comm = {};
    }
    while (world_.poll()) {
    }
  }

  bool hangs() const { return hangs_; }
  int size() const { return static_cast<int>(members_.size()); }
  const rank_outcome& operator[](int rank) const { return members_[index(rank)]->outcome; }
  const colls::simulated_world& world() const { return world_; }
  /// Returns how many ranks were killed before the last agreement of all living ranks.
  int kills() const { return kills_; }

 private:
  struct member {
    communicator comm;
    rank_outcome outcome;
    colls::task<> program;
    struct root : colls::completion {
    } done;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  colls::task<> live(member& me, int rank) {
    try {
      for (int call = 0; call < calls; ++call) {
        auto agreed = me.comm.agree(value_of(rank, call));
        me.outcome.agreements.push_back(co_await agreed);
      }
    } catch (const colls::error& failed) {
      me.outcome.failed = failed.record().code;
      me.outcome.culprit = failed.record().culprit;
    }
    me.outcome.has_ended = true;
  }
  bool has_ended() const {
    return std::all_of(members_.begin(), members_.end(), [](const auto& each) {
      return each->outcome.has_ended || each->outcome.was_killed;
    });
  }
  void handle(const fault& each) override {
    member& one = *members_[index(each.rank)];
    if (one.outcome.was_killed) return;
    if (!has_ended()) ++kills_;
    one.outcome.was_killed = true;
    one.done.withdraw();
    one.program = {};
    one.comm = {};
  }

  colls::simulated_world world_;
  std::vector<std::unique_ptr<member>> members_;
  bool hangs_ = false;
  int kills_ = 0;
};

std::string text_of(const agreement& each) {
  std::string text = std::to_string(each.value);
  for (const colls::lost_rank& lost : each.lost) {
    text += (lost.proved ? " !" : " ?") + std::to_string(lost.rank);
  }
  return text;
}

/// Checks that the living ranks have equal results, and that the value is that of the ranks that are
/// not lost. Adds the results to `distinct`.
void check_results(const trial& all, std::set<std::string>& distinct) {
  REQUIRE_FALSE(all.hangs());
  for (int call = 0; call < calls; ++call) {
    const agreement* first = nullptr;
    for (int rank = 0; rank < all.size(); ++rank) {
      const auto& outcome = all[rank];
      if (outcome.was_killed || std::ssize(outcome.agreements) <= call) continue;
      const agreement& own = outcome.agreements[static_cast<std::size_t>(call)];
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
    REQUIRE(std::ssize(all[rank].agreements) == calls);
    for (const agreement& each : all[rank].agreements) {
      for (const colls::lost_rank& lost : each.lost) {
        REQUIRE(all[lost.rank].was_killed);
        REQUIRE(lost.proved);
      }
    }
  }
}

fault kill(int rank, std::uint64_t event) {
  fault result;
  result.type = fault::kind::kill;
  result.rank = rank;
  result.event = event;
  return result;
}

struct latency {
  double us;
  colls::simulated::ticks delay;
  std::uint64_t seed;
};
const std::vector<latency>& latencies() {
  static const std::vector<latency> all{
      {1, 0, 0},
      {1, colls::simulated::to_ticks(20'000), 1},
      {100, colls::simulated::to_ticks(3 * colls::milliseconds), 2}};
  return all;
}

colls::simulated_world::settings settings_of(const latency& set, const fault_plan& plan) {
  colls::simulated_world::settings config;
  config.network.latency_us = set.us;
  config.seed = set.seed;
  config.plan = plan;
  config.plan.delay = set.delay;
  return config;
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
  int runs = 0;
  int both = 0;
  std::set<std::string> distinct;
  for (int size = 2; size <= 5; ++size) {
    for (const latency& set : latencies()) {
      for (int first = 0; first < size; ++first) {
        for (std::uint64_t event = 1;; ++event) {
          CAPTURE(size);
          CAPTURE(first);
          CAPTURE(event);
          fault_plan plan;
          plan.faults = {kill(first, event)};
          const trial alone(size, settings_of(set, plan));
          check_kills(alone, distinct);
          ++runs;
          if (alone.world().injected_faults().empty()) break;
          for (int second = first + 1; second < size; ++second) {
            for (std::uint64_t other_event = 1;; ++other_event) {
              CAPTURE(second);
              CAPTURE(other_event);
              plan.faults = {kill(first, event), kill(second, other_event)};
              const trial pair(size, settings_of(set, plan));
              check_kills(pair, distinct);
              ++runs;
              both += pair.kills() == 2 ? 1 : 0;
              if (pair.world().injected_faults().size() < 2) break;
            }
          }
        }
      }
    }
  }
  MESSAGE(runs, " runs, ", distinct.size(), " distinct decisions, ", both,
          " runs with both deaths inside the agreements");
  CHECK(both > 1000);
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
  fault_plan plan;
  for (auto faults = 1 + random() % 3; faults > 0; --faults) {
    fault each;
    constexpr fault::kind kinds[] = {fault::kind::cut,     fault::kind::cut_both,
                                     fault::kind::isolate, fault::kind::half_open,
                                     fault::kind::freeze,  fault::kind::clog};
    each.type = kinds[random() % std::size(kinds)];
    each.rank = static_cast<int>(random() % static_cast<unsigned>(size));
    each.peer =
        (each.rank + 1 + static_cast<int>(random() % static_cast<unsigned>(size - 1))) % size;
    each.event = 1 + random() % 16;
    each.duration = colls::simulated::to_ticks((1 + random() % 30) * colls::seconds);
    plan.faults.push_back(each);
  }
  plan.store = random() % 2 == 0;
  CAPTURE(plan.text());
  const trial all(size, settings_of(latencies()[random() % 3], plan));
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
  const char* const number = std::getenv("COLLS_SIM_SEEDS");
  const unsigned seeds = number != nullptr ? static_cast<unsigned>(std::atoi(number))
                         : is_full()       ? 200'000u
                                           : 2'000u;
  summary sum;
  for (unsigned seed = 0; seed < seeds; ++seed) check_seed(seed, sum);
  // Seeds that have found errors.
  for (const unsigned seed : {9108u, 10404u, 39078u, 56758u}) check_seed(seed, sum);
  MESSAGE(sum.decided, " of ", sum.ended, " ranks have both results, ", sum.distinct.size(),
          " distinct decisions");
  CHECK(sum.decided > sum.ended / 4);
}

}  // namespace
