// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Every algorithm on simulated networks: thousands of schedules and faults, and every point at
// which a rank can die.
//
// COLLS_SIM_SEEDS=N runs N seeds in place of the usual number; COLLS_SIM_SEED=S and
// COLLS_SIM_SCENARIO='...' run one scenario again, as a failure says.

#include "../support/closed_forms.hpp"
#include "../support/counted_memory.hpp"
#include "trial.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cerrno>
#include <cstdlib>

using namespace sim;

namespace {

/// The command that runs one scenario again.
std::string replay(const std::string& which) { return which + " " + program_invocation_name; }

/// The scenario ends as it must, gives the same trace in two runs, and frees all its memory.
void check(const scenario& setup, const std::string& again) {
  INFO("replay: ", again);
  INFO("scenario: ", setup.text());
  std::uint64_t print = 0;
  {
    const trial first(setup);
    print = first.print();
    REQUIRE(first.verdict() == "");
  }
  const std::size_t blocks = blocks_in_use;
  std::uint64_t second_print = 0;
  {
    const trial second(setup);
    second_print = second.print();
  }
  const std::size_t blocks_after = blocks_in_use;
  REQUIRE(second_print == print);
  REQUIRE(blocks_after == blocks);
}

/// The results have the bits of a run without delays on the flat network.
void check_bits(const scenario& setup, const std::string& again) {
  INFO("replay: ", again);
  INFO("scenario: ", setup.text());
  scenario plain = setup;
  plain.plan = {};
  plain.topology = "flat";
  plain.latency_us = 1;
  plain.overhead_us = 0;
  const trial one(setup);
  const trial other(plain);
  for (int rank = 0; rank < setup.ranks; ++rank) REQUIRE(one.results(rank) == other.results(rank));
}

void run_seed(std::uint64_t seed) {
  const scenario setup = draw(seed);
  const std::string again = replay("COLLS_SIM_SEED=" + std::to_string(seed));
  check(setup, again);
  if (!setup.plan.is_fatal() && setup.topology.find("nodes") != 0) check_bits(setup, again);
}

/// Whether no variable of the environment selects a single scenario.
bool runs_all() {
  return std::getenv("COLLS_SIM_SEED") == nullptr && std::getenv("COLLS_SIM_SCENARIO") == nullptr;
}

constexpr ticks per_us = 1000 * colls::simulated::per_nanosecond;

std::string title(const row& each) {
  return name(each.operation) + std::string(" ") + name(each.algo);
}

struct measurement {
  closed_forms::cost cost;
  ticks time = 0;
};

/// Runs one call of all ranks without payload.
measurement measure(const scenario& setup) {
  colls::simulated_world::settings settings = setup.settings();
  settings.phantom = true;
  settings.traced = false;
  colls::simulated_world world(setup.ranks, settings);
  std::vector<communicator> comms;
  for (int rank = 0; rank < setup.ranks; ++rank)
    comms.push_back(colls::simulated::join(world, rank));
  world.run_until([&] { return world.is_quiescent(); });
  world.reset_counters();
  const ticks began = world.time();
  std::vector<std::unique_ptr<call>> calls;
  std::vector<colls::operation<>> operations;
  for (int rank = 0; rank < setup.ranks; ++rank) {
    calls.push_back(std::make_unique<call>(setup, rank, 0, true));
    operations.push_back(calls.back()->start(comms[index(rank)]));
  }
  while (world.poll()) {
  }
  for (auto& each : operations) {
    REQUIRE_MESSAGE(each.underlying_call().is_done(), "deadlock: " << setup.text() << "\n"
                                                                   << world.waiting_report());
    REQUIRE_MESSAGE(each.reason().code == errc{}, setup.text());
  }
  return {{world.messages(), world.bytes(), world.rounds()}, world.time() - began};
}

/// The cost according to docs/algorithms.md.
std::optional<closed_forms::cost> expected(const scenario& setup) {
  closed_forms::call query{colls::partition(setup.n, setup.ranks), sizeof(std::uint32_t)};
  query.segment = setup.segment;
  query.radix = setup.radix;
  const auto topology = colls::simulated::topology::parse(setup.topology);
  const int group = topology.kind == colls::simulated::topology::shape::nodes ? topology.group : 1;
  for (int rank = 0; rank < setup.ranks; rank += group) {
    query.nodes.push_back(std::min(group, setup.ranks - rank));
  }
  return closed_forms::of(setup.call.operation, setup.call.algo, query);
}

}  // namespace

TEST_CASE("messages, bytes and rounds are those of the closed forms") {
  if (!runs_all()) return;
  for (const row& each : rows()) {
    for (int p = 1; p <= 130; ++p) {
      if (each.needs_even_ranks && p % 2 != 0) continue;
      for (const std::size_t n :
           {std::size_t{0}, std::size_t{1}, index(p - 1), index(p + 1), std::size_t{262'144}}) {
        scenario setup;
        setup.call = each;
        setup.ranks = p;
        setup.n = each.operation == collective::barrier ? 0 : n;
        // bruck sends lengths that differ in messages of their own, and phantoms have no data.
        if (each.operation == collective::all_to_all)
          setup.n = n > 1000 ? n - n % index(p) : n * index(p);
        setup.bandwidth = 1e9;
        setup.segment = std::size_t{1} << 40;  // one segment a chunk
        setup.radix = 2 + p % 4;
        INFO(title(each), ", ", p, " ranks, ", setup.n, " elements, radix ", setup.radix);
        const auto form = expected(setup);
        REQUIRE_MESSAGE(form.has_value(), "no closed form in tests/support/closed_forms.hpp");
        const closed_forms::cost cost = measure(setup).cost;
        REQUIRE(cost.messages == form->messages);
        REQUIRE(cost.bytes == form->bytes);
        REQUIRE(cost.rounds == form->rounds);
      }
    }
  }
}

TEST_CASE("costs on nodes are those of the closed forms") {
  if (!runs_all()) return;
  for (const row& each : rows()) {
    for (int p = 1; p <= 33; ++p) {
      if (each.needs_even_ranks && p % 2 != 0) continue;
      for (const char* topology : {"nodes:2", "nodes:3", "nodes:8"}) {
        for (const std::size_t n : {std::size_t{0}, index(p + 1), std::size_t{100'000}}) {
          scenario setup;
          setup.call = each;
          setup.ranks = p;
          setup.n = each.operation == collective::barrier ? 0 : n;
          if (each.operation == collective::all_to_all) setup.n = index(p) * 7;
          setup.topology = topology;
          setup.segment = std::size_t{1} << 40;
          setup.radix = 3;
          INFO(title(each), ", ", p, " ranks, ", topology, ", ", setup.n, " elements");
          REQUIRE(measure(setup).cost == *expected(setup));
        }
      }
    }
  }
}

// After 100 ms of virtual time ranks announce the peers that they wait for, and repeat their RTS.
TEST_CASE("a call may take long") {
  if (!runs_all()) return;
  for (const row& each : rows()) {
    for (const char* topology : {"flat", "nodes:1", "nodes:3", "fat_tree:2:1", "torus:7"}) {
      for (const std::size_t segment : {std::size_t{1} << 40, std::size_t{70'000}}) {
        scenario setup;
        setup.call = each;
        setup.ranks = each.needs_even_ranks ? 8 : 7;
        setup.topology = each.needs_even_ranks && *topology == 't' ? "torus:8" : topology;
        // Messages are longer than the eager limit, and segments have two lengths.
        setup.n = each.operation == collective::all_to_all ? 7 * 8 * 2'500 : 7 * 17'000 + 5;
        if (each.operation == collective::barrier) setup.n = 0;
        if (each.operation == collective::barrier) setup.latency_us = 200'000;
        setup.bandwidth = 1e-3;
        setup.segment = segment;
        INFO(title(each), ", ", topology, ", segments of ", segment);
        CHECK(measure(setup).time > 100'000 * per_us);
      }
    }
  }
}

TEST_CASE("times on the flat network are those of LogGP") {
  if (!runs_all()) return;
  constexpr double us = 1e6;
  for (const row& each : rows()) {
    const bool ring = each.algo == algorithm::ring;
    if (each.operation != collective::all_reduce) continue;
    if (!ring && each.algo != algorithm::recursive_doubling) continue;
    for (int p = 2; p <= 130; p += p < 20 ? 1 : 11) {
      for (const double overhead : {0.0, 0.5}) {
        for (const double bandwidth : {1e9, 8.0}) {
          scenario setup;
          setup.call = each;
          setup.ranks = p;
          setup.n = index(p) * (colls::eager_limit / 8);
          setup.overhead_us = overhead;
          setup.bandwidth = bandwidth;
          setup.segment = std::size_t{1} << 40;
          const double bytes = static_cast<double>(setup.n) * 4 / (ring ? p : 1);
          const double step = 2 * overhead + 1 + bytes / bandwidth * 1e-3;
          const int log = static_cast<int>(std::bit_width(index(p))) - 1;
          const bool power = (p & (p - 1)) == 0;
          const int steps = ring ? 2 * (p - 1) : power ? log : log + 2;
          INFO(title(each), ", ", p, " ranks, overhead ", overhead, ", bandwidth ", bandwidth);
          CHECK(static_cast<double>(measure(setup).time) / us ==
                doctest::Approx(steps * step).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE("calibration measures the costs of messages, and names a rank that dies meanwhile") {
  if (!runs_all()) return;
  constexpr int victim = 5;
  int good = 0;
  for (const std::uint64_t event : {1U, 2U, 7U, 40U, 300U, 1'000'000U}) {
    colls::simulated_world::settings settings;
    settings.network.latency_us = 10;
    settings.network.overhead_us = 1;
    settings.network.bandwidth = 6;
    settings.network.wiring = colls::simulated::topology::parse("nodes:4");
    settings.plan = fault_plan::parse("kill 5 @" + std::to_string(event));
    colls::simulated_world world(8, settings);
    std::vector<communicator> comms;
    std::vector<colls::operation<>> measuring;
    for (int rank = 0; rank < 8; ++rank) comms.push_back(colls::simulated::join(world, rank));
    for (communicator& each : comms) measuring.push_back(each.measure());
    INFO("event ", event);
    REQUIRE(world.run_until([&] {
      for (int rank = 0; rank < 8; ++rank) {
        if (rank != victim && !measuring[index(rank)].underlying_call().is_done()) return false;
      }
      return true;
    }));
    CHECK(world.time() < colls::simulated::to_ticks(20 * colls::seconds));
    if (world.injected_faults().empty()) ++good;
    for (int rank = 0; rank < 8; ++rank) {
      if (rank == victim) continue;
      const colls::failure& why = measuring[index(rank)].reason();
      if (!world.injected_faults().empty()) {
        CHECK((why.code == errc::peer_failed && why.culprit == victim));
        continue;
      }
      REQUIRE(why.code == errc{});
      const colls::network_cost found = comms[index(rank)].tuning().costs();
      CHECK(double(found.near.latency) == doctest::Approx(2.5e6).epsilon(0.1));
      CHECK(double(found.far.latency) == doctest::Approx(11e6).epsilon(0.1));
      CHECK(double(found.far.overhead) == doctest::Approx(1e6).epsilon(0.1));
      CHECK(double(found.near.per_kib) == doctest::Approx(1.024e6 / 24).epsilon(0.1));
      CHECK(double(found.far.per_kib) == doctest::Approx(1.024e6 / 6).epsilon(0.1));
      CHECK(double(found.host_per_kib) == doctest::Approx(1.024e6 / 6).epsilon(0.1));
    }
  }
  CHECK(good == 1);
}

TEST_CASE("a rank may die at any point of any algorithm") {
  if (!runs_all()) return;
  std::size_t points = 0;
  for (const row& each : rows()) {
    for (int p = 2; p <= 4; ++p) {
      for (int victim = 0; victim < p; ++victim) {
        for (const bool careful : {false, true}) {
          for (std::uint64_t k = 1;; ++k) {
            scenario setup;
            setup.call = each;
            setup.ranks = p;
            setup.n = each.operation == collective::barrier ? 0 : index(2 * p + 1);
            setup.root = has_root(each.operation) && careful ? p - 1 : 0;
            setup.plan.store = careful;
            setup.plan.eager_limit = careful ? 0 : colls::eager_limit;
            fault death;
            death.rank = victim;
            death.event = k;
            setup.plan.faults.push_back(death);
            const trial tried(setup);
            INFO("replay: ", replay("COLLS_SIM_SCENARIO='" + setup.text() + "'"));
            REQUIRE(tried.verdict() == "");
            if (!tried.was_struck()) break;
            ++points;
          }
        }
      }
    }
  }
  MESSAGE(points << " points at which a rank died");
}

// The other ranks have a deadline of 2 s.
TEST_CASE("a rank that falls silent at any point of any algorithm is named by all that wait") {
  if (!runs_all()) return;
  std::size_t points = 0;
  std::size_t had_entered = 0;
  for (const row& each : rows()) {
    for (const int p : {2, 3, 4, 8}) {
      if (each.needs_even_ranks && p % 2 != 0) continue;
      for (int victim = 0; victim < p; ++victim) {
        for (std::uint64_t k = 1;; ++k) {
          scenario setup;
          setup.call = each;
          setup.ranks = p;
          setup.n = each.operation == collective::barrier ? 0 : index(8 * p);
          setup.plan = fault_plan::parse("freeze " + std::to_string(victim) + " @" +
                                         std::to_string(k) + " 1000s");
          INFO("scenario: ", setup.text());
          colls::simulated_world world(p, setup.settings());
          std::vector<communicator> comms;
          for (int rank = 0; rank < p; ++rank) comms.push_back(colls::simulated::join(world, rank));
          world.run_until([&] { return world.is_quiescent(); });
          std::vector<std::unique_ptr<call>> calls;
          std::vector<colls::operation<>> operations;
          for (int rank = 0; rank < p; ++rank) {
            world[rank].matching().find(0)->inactivity = 2 * colls::seconds;
            calls.push_back(std::make_unique<call>(setup, rank, 0));
            operations.push_back(calls.back()->start(comms[index(rank)]));
          }
          const auto others_ended = [&] {
            for (int rank = 0; rank < p; ++rank) {
              if (rank != victim && !operations[index(rank)].underlying_call().is_done())
                return false;
            }
            return true;
          };
          while (!others_ended()) {
            if (!world.poll()) world.idle(0);
          }
          const bool struck = !world.injected_faults().empty();
          CHECK(world.time() < colls::simulated::to_ticks(5 * colls::seconds));
          for (int rank = 0; rank < p; ++rank) {
            const colls::failure& why = operations[index(rank)].reason();
            if (rank == victim || why.code == errc{}) continue;
            INFO("rank ", rank, ": ", to_text(why));
            REQUIRE(struck);
            REQUIRE(why.code == errc::timeout);
            REQUIRE(why.culprit == victim);
            const std::string sentence = why.detail;
            const std::string name = "rank " + std::to_string(victim);
            const bool entered = sentence.starts_with(name + " entered #1 ");
            CHECK((entered || sentence.starts_with(name + " has not entered #1 ")));
            had_entered += entered ? 1 : 0;
            ++points;
          }
          if (!struck) break;
        }
      }
    }
  }
  CHECK(had_entered > 0);
  CHECK(points > had_entered);
  MESSAGE(points << " waiting ranks, of which " << had_entered
                 << " knew that the silent rank had entered");
}

// Each rank queries a few other ranks, which report the state of the rest.
TEST_CASE(
    "in a large world every rank names the lowest late rank, and mentions the other late ranks") {
  if (!runs_all()) return;
  for (const row& each : rows()) {
    if (each.operation != collective::all_reduce && each.operation != collective::barrier) continue;
    constexpr int p = 100;
    const std::vector<int> late{37, 38, 70};
    scenario setup;
    setup.call = each;
    setup.ranks = p;
    setup.n = each.operation == collective::barrier ? 0 : index(p);
    INFO("scenario: ", setup.text());
    colls::simulated_world world(p, setup.settings());
    std::vector<communicator> comms;
    for (int rank = 0; rank < p; ++rank) comms.push_back(colls::simulated::join(world, rank));
    world.run_until([&] { return world.is_quiescent(); });
    std::vector<std::unique_ptr<call>> calls;
    std::vector<colls::operation<>> operations;
    for (int rank = 0; rank < p; ++rank) {
      // Each rank has a different deadline: the first rank that ends reports the reason to the
      // others.
      world[rank].matching().find(0)->inactivity =
          (2 * colls::seconds) + rank * colls::seconds / 50;
      if (std::find(late.begin(), late.end(), rank) != late.end()) continue;
      calls.push_back(std::make_unique<call>(setup, rank, 0));
      operations.push_back(calls.back()->start(comms[index(rank)]));
    }
    for (colls::operation<>& one : operations) {
      while (!one.underlying_call().is_done()) {
        if (!world.poll()) world.idle(0);
      }
      if (one.reason().code == errc{}) continue;
      REQUIRE(one.reason().code == errc::timeout);
      REQUIRE(one.reason().culprit == 37);
      CHECK(std::string(one.reason().detail).find("; nor have ranks 38, 70;") != std::string::npos);
    }
    CHECK(world.time() < colls::simulated::to_ticks(3 * colls::seconds));
  }
}

// Each scenario once exposed a bug.
TEST_CASE("regressions") {
  if (!runs_all()) return;
  for (const char* text : {
           // A control message overtook a message that waited to be accepted.
           "all_gather ring 12 20000 int 0 1 416 0 3 1 nodes:2 0 0.25 12.5 1603 | "
           "clog 9>10 @30 2s; pieces; eager 0",
       }) {
    check(scenario::parse(text), replay("COLLS_SIM_SCENARIO='" + std::string(text) + "'"));
  }
}

TEST_CASE("seeds") {
  if (const char* const one = std::getenv("COLLS_SIM_SEED")) {
    run_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  if (const char* const text = std::getenv("COLLS_SIM_SCENARIO")) {
    check(scenario::parse(text), replay("COLLS_SIM_SCENARIO='" + std::string(text) + "'"));
    return;
  }
  const char* const count = std::getenv("COLLS_SIM_SEEDS");
  const std::uint64_t seeds = count != nullptr ? std::strtoull(count, nullptr, 10) : 4000;
  REQUIRE(seeds > 0);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_seed(seed);
}
