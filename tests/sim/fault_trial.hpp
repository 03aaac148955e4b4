// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Programs of simulated ranks, of which some die, and the faults that tests draw.

#include <colls/simulated.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

using colls::simulated::communicator;
using colls::simulated::fault;
using colls::simulated::fault_plan;

inline bool is_full() { return std::getenv("COLLS_TEST_FULL") != nullptr; }

/// Returns how many seeds a test tries: COLLS_SIM_SEEDS, or a number that COLLS_TEST_FULL raises.
inline unsigned seed_count(unsigned usual, unsigned full) {
  const char* const number = std::getenv("COLLS_SIM_SEEDS");
  if (number != nullptr) return static_cast<unsigned>(std::atoi(number));
  return is_full() ? full : usual;
}

/// What became of one rank. `Result` is what its program records.
template <class Result>
struct rank_outcome : Result {
  bool has_ended = false;
  bool was_killed = false;
};

/// Runs a program on each rank of a simulated world until all have ended or were killed.
template <class Result>
class fault_trial final : colls::simulated_world::fault_handler {
 public:
  using outcome = rank_outcome<Result>;
  using program = std::function<colls::task<>(communicator&, Result&)>;

  fault_trial(int size, const colls::simulated_world::settings& config, const program& run)
      : world_(size, config), run_(run) {
    world_.set_fault_handler(static_cast<fault_handler&>(*this));
    for (int rank = 0; rank < size; ++rank) {
      members_.push_back(std::make_unique<member>());
      members_.back()->comm = colls::simulated::join(world_, rank);
    }
    for (int rank = 0; rank < size; ++rank) {
      member& one = *members_[index(rank)];
      one.done.bind([](colls::completion&) noexcept {},
                    colls::completion(nullptr, &world_[rank].queue()));
      one.program = live(one);
      (void)one.program.start(one.done);
    }
    hangs_ = !world_.run_until([&] { return has_ended(); });
  }
  ~fault_trial() {
    for (const auto& each : members_) end(*each);
    while (world_.poll()) {
    }
  }

  bool hangs() const { return hangs_; }
  int size() const { return static_cast<int>(members_.size()); }
  const outcome& operator[](int rank) const { return members_[index(rank)]->result; }
  const colls::simulated_world& world() const { return world_; }
  /// Returns how many ranks were killed before all living ranks had ended.
  int kills() const { return kills_; }

 private:
  struct member {
    communicator comm;
    outcome result;
    colls::task<> program;
    struct root : colls::completion {
    } done;
  };
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  colls::task<> live(member& me) {
    co_await run_(me.comm, me.result);
    me.result.has_ended = true;
  }
  bool has_ended() const {
    return std::all_of(members_.begin(), members_.end(), [](const auto& each) {
      return each->result.has_ended || each->result.was_killed;
    });
  }
  static void end(member& one) {
    one.done.withdraw();
    one.program = {};
    one.comm = {};
  }
  void handle(const fault& each) override {
    member& one = *members_[index(each.rank)];
    if (one.result.was_killed) return;
    if (!has_ended()) ++kills_;
    one.result.was_killed = true;
    end(one);
  }

  colls::simulated_world world_;
  program run_;
  std::vector<std::unique_ptr<member>> members_;
  bool hangs_ = false;
  int kills_ = 0;
};

inline fault kill(int rank, std::uint64_t event) {
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
inline const std::vector<latency>& latencies() {
  static const std::vector<latency> all{
      {1, 0, 0},
      {1, colls::simulated::to_ticks(20'000), 1},
      {100, colls::simulated::to_ticks(3 * colls::milliseconds), 2}};
  return all;
}

inline colls::simulated_world::settings settings_of(const latency& set, const fault_plan& plan) {
  colls::simulated_world::settings config;
  config.network.latency_us = set.us;
  config.seed = set.seed;
  config.plan = plan;
  config.plan.delay = set.delay;
  return config;
}

/// Draws the faults of a run of `size` ranks: cut links, isolated hosts, frozen ranks.
inline fault_plan draw_faults(std::mt19937& random, int size) {
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
  return plan;
}

struct kill_counts {
  int runs = 0;
  int both = 0;  // runs in which two ranks were killed before the end
};
/// Runs `program` on worlds of `min_size` to `max_size` ranks, with each latency: kills each rank
/// at every event, alone and together with each higher rank at every event. Calls `check(trial)`
/// after each run.
template <class Result, class Check>
kill_counts try_kills(int min_size, int max_size,
                      const typename fault_trial<Result>::program& program, const Check& check) {
  kill_counts counts;
  const auto has_injected = [&](int size, const latency& set, const std::vector<fault>& kills) {
    fault_plan plan;
    plan.faults = kills;
    const fault_trial<Result> all(size, settings_of(set, plan), program);
    CAPTURE(plan.text());
    check(all);
    ++counts.runs;
    counts.both += all.kills() == 2 ? 1 : 0;
    return all.world().injected_faults().size() == kills.size();
  };
  for (int size = min_size; size <= max_size; ++size) {
    CAPTURE(size);
    for (const latency& set : latencies()) {
      for (int first = 0; first < size; ++first) {
        for (std::uint64_t event = 1; has_injected(size, set, {kill(first, event)}); ++event) {
          for (int second = first + 1; second < size; ++second) {
            std::uint64_t other = 1;
            while (has_injected(size, set, {kill(first, event), kill(second, other)})) ++other;
          }
        }
      }
    }
  }
  return counts;
}
