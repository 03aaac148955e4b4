// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Every algorithm on simulated networks: thousands of schedules and faults, every point at which a
// rank can die.
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

/// It goes well, the same in two runs, and leaves nothing behind.
void check(const scenario& of, const std::string& again) {
  INFO("replay: ", again);
  INFO("scenario: ", of.text());
  std::uint64_t print = 0;
  {
    const trial first(of);
    print = first.print();
    REQUIRE(first.verdict() == "");
  }
  const std::size_t blocks = blocks_in_use;
  std::uint64_t second_print = 0;
  {
    const trial second(of);
    second_print = second.print();
  }
  const std::size_t blocks_after = blocks_in_use;
  REQUIRE(second_print == print);
  REQUIRE(blocks_after == blocks);
}

/// Whatever the schedule, the results have the bits of a plain run.
void check_bits(const scenario& of, const std::string& again) {
  INFO("replay: ", again);
  INFO("scenario: ", of.text());
  scenario plain = of;
  plain.suffers = {};
  plain.wires = "flat";
  plain.latency_us = 1;
  plain.overhead_us = 0;
  const trial one(of);
  const trial other(plain);
  for (int rank = 0; rank < of.ranks; ++rank) REQUIRE(one.results(rank) == other.results(rank));
}

void run_seed(std::uint64_t seed) {
  const scenario of = draw(seed);
  const std::string again = replay("COLLS_SIM_SEED=" + std::to_string(seed));
  check(of, again);
  if (!of.suffers.is_fatal() && of.wires.find("nodes") != 0) check_bits(of, again);
}

/// Nothing in the environment asks for one scenario alone.
bool all_are_wanted() {
  return std::getenv("COLLS_SIM_SEED") == nullptr && std::getenv("COLLS_SIM_SCENARIO") == nullptr;
}

constexpr ticks per_us = 1000 * colls::simulated::per_nanosecond;

std::string title(const row& of) { return name(of.what) + std::string(" ") + name(of.how); }

struct measured {
  closed_forms::cost paid;
  ticks time = 0;
};

/// One call of all ranks, without payload.
measured measure(const scenario& of) {
  colls::simulated_world::settings how = of.settings();
  how.phantom = true;
  how.traced = false;
  colls::simulated_world world(of.ranks, how);
  std::vector<communicator> comms;
  for (int rank = 0; rank < of.ranks; ++rank) comms.push_back(colls::simulated::join(world, rank));
  world.run_until([&] { return world.is_silent(); });
  world.forget_counts();
  const ticks began = world.time();
  std::vector<std::unique_ptr<call>> calls;
  std::vector<colls::operation<>> under_way;
  for (int rank = 0; rank < of.ranks; ++rank) {
    calls.push_back(std::make_unique<call>(of, rank, 0, true));
    under_way.push_back(calls.back()->start(comms[index(rank)]));
  }
  while (world.poll()) {
  }
  for (auto& each : under_way) {
    REQUIRE_MESSAGE(each.started().is_done(), "deadlock: " << of.text() << "\n" << world.waiting());
    REQUIRE_MESSAGE(each.why().code == errc{}, of.text());
  }
  return {{world.messages(), world.bytes(), world.rounds()}, world.time() - began};
}

/// What docs/algorithms.md says of it.
std::optional<closed_forms::cost> expected(const scenario& of) {
  closed_forms::call what{colls::partition(of.n, of.ranks), sizeof(std::uint32_t)};
  what.segment = of.segment;
  what.radix = of.radix;
  const auto wires = colls::simulated::topology::parse(of.wires);
  const int group = wires.kind == colls::simulated::topology::shape::nodes ? wires.group : 1;
  for (int rank = 0; rank < of.ranks; rank += group) {
    what.nodes.push_back(std::min(group, of.ranks - rank));
  }
  return closed_forms::of(of.call.what, of.call.how, what);
}

}  // namespace

TEST_CASE("messages, bytes and rounds are those of the closed forms") {
  if (!all_are_wanted()) return;
  for (const row& each : rows()) {
    for (int p = 1; p <= 130; ++p) {
      if (each.needs_even_ranks && p % 2 != 0) continue;
      for (const std::size_t n :
           {std::size_t{0}, std::size_t{1}, index(p - 1), index(p + 1), std::size_t{262'144}}) {
        scenario of;
        of.call = each;
        of.ranks = p;
        of.n = each.what == collective::barrier ? 0 : n;
        // bruck tells lengths that differ in messages, and phantoms tell nothing.
        if (each.what == collective::all_to_all) of.n = n > 1000 ? n - n % index(p) : n * index(p);
        of.bandwidth = 1e9;
        of.segment = std::size_t{1} << 40;  // chunks travel whole
        of.radix = 2 + p % 4;
        INFO(title(each), ", ", p, " ranks, ", of.n, " elements, radix ", of.radix);
        const auto says = expected(of);
        REQUIRE_MESSAGE(says.has_value(), "no closed form in tests/support/closed_forms.hpp");
        const closed_forms::cost paid = measure(of).paid;
        REQUIRE(paid.messages == says->messages);
        REQUIRE(paid.bytes == says->bytes);
        REQUIRE(paid.rounds == says->rounds);
      }
    }
  }
}

TEST_CASE("costs on nodes are those of the closed forms") {
  if (!all_are_wanted()) return;
  for (const row& each : rows()) {
    for (int p = 1; p <= 33; ++p) {
      if (each.needs_even_ranks && p % 2 != 0) continue;
      for (const char* wires : {"nodes:2", "nodes:3", "nodes:8"}) {
        for (const std::size_t n : {std::size_t{0}, index(p + 1), std::size_t{100'000}}) {
          scenario of;
          of.call = each;
          of.ranks = p;
          of.n = each.what == collective::barrier ? 0 : n;
          if (each.what == collective::all_to_all) of.n = index(p) * 7;
          of.wires = wires;
          of.segment = std::size_t{1} << 40;
          of.radix = 3;
          INFO(title(each), ", ", p, " ranks, ", wires, ", ", of.n, " elements");
          REQUIRE(measure(of).paid == *expected(of));
        }
      }
    }
  }
}

// After 100 ms of virtual time ranks announce for whom they wait, and remind of what waits for
// them.
TEST_CASE("a call may take long") {
  if (!all_are_wanted()) return;
  for (const row& each : rows()) {
    for (const char* wires : {"flat", "nodes:1", "nodes:3", "fat_tree:2:1", "torus:7"}) {
      for (const std::size_t segment : {std::size_t{1} << 40, std::size_t{70'000}}) {
        scenario of;
        of.call = each;
        of.ranks = each.needs_even_ranks ? 8 : 7;
        of.wires = each.needs_even_ranks && *wires == 't' ? "torus:8" : wires;
        // Longer than what is sent unasked, and pieces of two lengths.
        of.n = each.what == collective::all_to_all ? 7 * 8 * 2'500 : 7 * 17'000 + 5;
        if (each.what == collective::barrier) of.n = 0;
        if (each.what == collective::barrier) of.latency_us = 200'000;
        of.bandwidth = 1e-3;
        of.segment = segment;
        INFO(title(each), ", ", wires, ", segments of ", segment);
        CHECK(measure(of).time > 100'000 * per_us);
      }
    }
  }
}

TEST_CASE("times on the flat network are those of LogGP") {
  if (!all_are_wanted()) return;
  constexpr double us = 1e6;
  for (const row& each : rows()) {
    const bool ring = each.how == algorithm::ring;
    if (each.what != collective::all_reduce) continue;
    if (!ring && each.how != algorithm::recursive_doubling) continue;
    for (int p = 2; p <= 130; p += p < 20 ? 1 : 11) {
      for (const double overhead : {0.0, 0.5}) {
        for (const double bandwidth : {1e9, 8.0}) {
          scenario of;
          of.call = each;
          of.ranks = p;
          of.n = index(p) * (colls::eager_limit / 8);
          of.overhead_us = overhead;
          of.bandwidth = bandwidth;
          of.segment = std::size_t{1} << 40;
          const double bytes = static_cast<double>(of.n) * 4 / (ring ? p : 1);
          const double step = 2 * overhead + 1 + bytes / bandwidth * 1e-3;
          const int log = static_cast<int>(std::bit_width(index(p))) - 1;
          const bool power = (p & (p - 1)) == 0;
          const int steps = ring ? 2 * (p - 1) : power ? log : log + 2;
          INFO(title(each), ", ", p, " ranks, overhead ", overhead, ", bandwidth ", bandwidth);
          CHECK(static_cast<double>(measure(of).time) / us ==
                doctest::Approx(steps * step).epsilon(1e-6));
        }
      }
    }
  }
}

TEST_CASE("what messages cost is found out, and a rank that dies meanwhile is named") {
  if (!all_are_wanted()) return;
  constexpr int victim = 5;
  int good = 0;
  for (const std::uint64_t event : {1U, 2U, 7U, 40U, 300U, 1'000'000U}) {
    colls::simulated_world::settings how;
    how.network.latency_us = 10;
    how.network.overhead_us = 1;
    how.network.bandwidth = 6;
    how.network.wiring = colls::simulated::topology::parse("nodes:4");
    how.plan = plan::parse("kill 5 @" + std::to_string(event));
    colls::simulated_world world(8, how);
    std::vector<communicator> comms;
    std::vector<colls::operation<>> measuring;
    for (int rank = 0; rank < 8; ++rank) comms.push_back(colls::simulated::join(world, rank));
    for (communicator& each : comms) measuring.push_back(each.measure());
    INFO("event ", event);
    REQUIRE(world.run_until([&] {
      for (int rank = 0; rank < 8; ++rank) {
        if (rank != victim && !measuring[index(rank)].started().is_done()) return false;
      }
      return true;
    }));
    CHECK(world.time() < colls::simulated::to_ticks(20 * colls::seconds));
    if (world.happened().empty()) ++good;
    for (int rank = 0; rank < 8; ++rank) {
      if (rank == victim) continue;
      const colls::failure& why = measuring[index(rank)].why();
      if (!world.happened().empty()) {
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
  if (!all_are_wanted()) return;
  std::size_t points = 0;
  for (const row& each : rows()) {
    for (int p = 2; p <= 4; ++p) {
      for (int victim = 0; victim < p; ++victim) {
        for (const bool careful : {false, true}) {
          for (std::uint64_t k = 1;; ++k) {
            scenario of;
            of.call = each;
            of.ranks = p;
            of.n = each.what == collective::barrier ? 0 : index(2 * p + 1);
            of.root = has_root(each.what) && careful ? p - 1 : 0;
            of.suffers.store = careful;
            of.suffers.eager_limit = careful ? 0 : colls::eager_limit;
            fault death;
            death.rank = victim;
            death.event = k;
            of.suffers.faults.push_back(death);
            const trial tried(of);
            INFO("replay: ", replay("COLLS_SIM_SCENARIO='" + of.text() + "'"));
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

// The others have a deadline of 2 s.
TEST_CASE("a rank that falls silent at any point of any algorithm is named by all that wait") {
  if (!all_are_wanted()) return;
  std::size_t points = 0;
  std::size_t had_entered = 0;
  for (const row& each : rows()) {
    for (const int p : {2, 3, 4, 8}) {
      if (each.needs_even_ranks && p % 2 != 0) continue;
      for (int victim = 0; victim < p; ++victim) {
        for (std::uint64_t k = 1;; ++k) {
          scenario of;
          of.call = each;
          of.ranks = p;
          of.n = each.what == collective::barrier ? 0 : index(8 * p);
          of.suffers =
              plan::parse("freeze " + std::to_string(victim) + " @" + std::to_string(k) + " 1000s");
          INFO("scenario: ", of.text());
          colls::simulated_world world(p, of.settings());
          std::vector<communicator> comms;
          for (int rank = 0; rank < p; ++rank) comms.push_back(colls::simulated::join(world, rank));
          world.run_until([&] { return world.is_silent(); });
          std::vector<std::unique_ptr<call>> calls;
          std::vector<colls::operation<>> under_way;
          for (int rank = 0; rank < p; ++rank) {
            world[rank].matching().find(0)->inactivity = 2 * colls::seconds;
            calls.push_back(std::make_unique<call>(of, rank, 0));
            under_way.push_back(calls.back()->start(comms[index(rank)]));
          }
          const auto others_ended = [&] {
            for (int rank = 0; rank < p; ++rank) {
              if (rank != victim && !under_way[index(rank)].started().is_done()) return false;
            }
            return true;
          };
          while (!others_ended()) {
            if (!world.poll()) world.idle(0);
          }
          const bool struck = !world.happened().empty();
          CHECK(world.time() < colls::simulated::to_ticks(5 * colls::seconds));
          for (int rank = 0; rank < p; ++rank) {
            const colls::failure& why = under_way[index(rank)].why();
            if (rank == victim || why.code == errc{}) continue;
            INFO("rank ", rank, ": ", to_text(why));
            REQUIRE(struck);
            REQUIRE(why.code == errc::timeout);
            REQUIRE(why.culprit == victim);
            const std::string sentence = why.detail;
            const std::string who = "rank " + std::to_string(victim);
            const bool entered = sentence.starts_with(who + " entered #1 ");
            CHECK((entered || sentence.starts_with(who + " has not entered #1 ")));
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
  MESSAGE(points << " ranks that waited, of which " << had_entered
                 << " knew that the silent rank was inside");
}

// Each rank asks some others; what it hears of the rest comes by these.
TEST_CASE("in a large world all ranks name the lowest late one, and those beside it") {
  if (!all_are_wanted()) return;
  for (const row& each : rows()) {
    if (each.what != collective::all_reduce && each.what != collective::barrier) continue;
    constexpr int p = 100;
    const std::vector<int> late{37, 38, 70};
    scenario of;
    of.call = each;
    of.ranks = p;
    of.n = each.what == collective::barrier ? 0 : index(p);
    INFO("scenario: ", of.text());
    colls::simulated_world world(p, of.settings());
    std::vector<communicator> comms;
    for (int rank = 0; rank < p; ++rank) comms.push_back(colls::simulated::join(world, rank));
    world.run_until([&] { return world.is_silent(); });
    std::vector<std::unique_ptr<call>> calls;
    std::vector<colls::operation<>> under_way;
    for (int rank = 0; rank < p; ++rank) {
      // Each has its own deadline: the first to end tells the others why.
      world[rank].matching().find(0)->inactivity =
          (2 * colls::seconds) + rank * colls::seconds / 50;
      if (std::find(late.begin(), late.end(), rank) != late.end()) continue;
      calls.push_back(std::make_unique<call>(of, rank, 0));
      under_way.push_back(calls.back()->start(comms[index(rank)]));
    }
    for (colls::operation<>& one : under_way) {
      while (!one.started().is_done()) {
        if (!world.poll()) world.idle(0);
      }
      if (one.why().code == errc{}) continue;
      REQUIRE(one.why().code == errc::timeout);
      REQUIRE(one.why().culprit == 37);
      CHECK(std::string(one.why().detail).find("; nor have ranks 38, 70;") != std::string::npos);
    }
    CHECK(world.time() < colls::simulated::to_ticks(3 * colls::seconds));
  }
}

// Each showed a fault once.
TEST_CASE("scenarios of old") {
  if (!all_are_wanted()) return;
  for (const char* text : {
           // A word overtook a message that waited to be taken in.
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
  const char* const many = std::getenv("COLLS_SIM_SEEDS");
  const std::uint64_t seeds = many != nullptr ? std::strtoull(many, nullptr, 10) : 4000;
  REQUIRE(seeds > 0);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_seed(seed);
}
