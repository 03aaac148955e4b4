// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// All that lies above the carriers, over simulated streams of bytes in virtual time: every event of
// programs of 2 and 3 ranks is struck by a death, a cut, a freeze or a split, and seeds draw two
// faults.
//
// COLLS_SIM_SEEDS=N runs N seeds in place of the usual number; COLLS_SIM_SEED=S and
// COLLS_SIM_SCENARIO='...' run one scenario again, as a failure says.

#include "../support/counted_memory.hpp"
#include "pipe_programs.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstdlib>
#include <sstream>

using namespace pipes;

namespace {

enum class fault_kind : std::uint8_t { kill, cut, freeze, reset, flip, write, read };
constexpr const char* fault_names[] = {"kill", "cut", "freeze", "reset", "flip", "write", "read"};

/// What happens to a rank, or to what it sends to a peer, after so many events.
struct fault {
  fault_kind kind = fault_kind::kill;
  int event = 0;
  int rank = 0;
  int peer = 0;
  std::uint64_t amount = 0;  // the milliseconds of a freeze, or the bytes of a write or a read

  time_point duration() const {
    return kind == fault_kind::freeze ? static_cast<time_point>(amount) * milliseconds : 0;
  }
};

struct scenario {
  program what = program::collectives;
  int ranks = 2;
  std::uint64_t seed = 1;
  bool checks = false;  // with checksums
  std::uint64_t timeout = 20'000;
  std::vector<fault> faults = {};

  /// One line, which `parse` reads.
  std::string text() const {
    std::ostringstream all;
    all << program_names[static_cast<int>(what)] << ' ' << ranks << ' ' << seed << ' ' << checks
        << ' ' << timeout;
    for (const fault& each : faults) {
      all << ' ' << fault_names[static_cast<int>(each.kind)] << ' ' << each.event << ' '
          << each.rank << ' ' << each.peer << ' ' << each.amount;
    }
    return all.str();
  }
  static scenario parse(const std::string& text) {
    const auto number_of = [&](const std::string& name, const auto& names) {
      const auto found = std::find(std::begin(names), std::end(names), name);
      if (found == std::end(names)) throw std::invalid_argument("no scenario: " + text);
      return found - std::begin(names);
    };
    std::istringstream in(text);
    scenario made;
    std::string name;
    in >> name >> made.ranks >> made.seed >> made.checks >> made.timeout;
    made.what = static_cast<program>(number_of(name, program_names));
    while (in >> name) {
      fault& each = made.faults.emplace_back();
      each.kind = static_cast<fault_kind>(number_of(name, fault_names));
      in >> each.event >> each.rank >> each.peer >> each.amount;
    }
    return made;
  }
  time_point limit() const { return static_cast<time_point>(timeout) * milliseconds; }
};

/// Runs a scenario and judges its outcome.
class trial {
 public:
  explicit trial(const scenario& setup) : setup_(setup) {
    simulated::world all(setup.ranks, setup.seed, setup.checks);
    for (const auto& each : all.ranks) {
      member_of(each->rank()).start(*each, setup.what, setup.limit());
    }
    const auto is_over = [&] {
      return std::all_of(all.ranks.begin(), all.ranks.end(),
                         [](const auto& each) { return each->is_dead || each->is_done(); });
    };
    time_point bound = all.time.now() + 2 * seconds;
    for (const fault& each : setup.faults) {
      events_ += all.run(is_over, 100 * seconds, std::max(0, each.event - events_));
      if (is_over()) break;
      if (strike(all, each)) struck_.push_back(each);
      bound = std::max(bound, all.time.now() + longest_effect(each));
    }
    events_ += all.run(is_over, 100 * seconds);
    const bool is_late = all.time.now() > bound;
    // Whatever is still on its way arrives.
    (void)all.run([] { return false; }, seconds + longest_freeze());
    trace_ = all.time.trace();
    for (const auto& each : all.ranks) {
      trace_ = mix(trace_, static_cast<std::uint64_t>(each->state().reason().code));
      if (verdict_.empty()) verdict_ = judge(*each);
      failed_ += each->state().failed() && !each->is_dead;
    }
    const bool any_loss = std::any_of(struck_.begin(), struck_.end(), loses_frames);
    for (const auto& each : all.links) {
      if (any_loss || !verdict_.empty()) break;
      verdict_ = leftover(all.rank(each.ranks[0]), all.rank(each.ranks[1]));
      if (verdict_.empty()) verdict_ = leftover(all.rank(each.ranks[1]), all.rank(each.ranks[0]));
    }
    if (!is_over() || is_late) verdict_ = "a rank does not end in time";
  }

  /// Says what is wrong; empty if nothing is.
  const std::string& verdict() const { return verdict_; }
  /// A hash of everything that was observed: equal in two runs of one scenario.
  std::uint64_t trace() const { return trace_; }
  int events() const { return events_; }
  /// The number of surviving ranks whose communicator has failed.
  int failed() const { return failed_; }
  /// Those of them that named no rank, or a peer that waited itself.
  int undecided() const { return undecided_; }

 private:
  static member& member_of(int rank) {
    static member all[3];
    return all[rank];
  }
  /// Within this time after a fault all ranks end. A death shows at once, and a cut within
  /// 17 s. An operation that is overdue asks its peers again.
  time_point longest_effect(const fault& what) const {
    const bool is_waited_for = what.kind == fault_kind::freeze && what.duration() >= setup_.limit();
    if (is_waited_for) return what.duration() + setup_.limit() + 2 * seconds;
    return what.kind == fault_kind::cut ? 17 * seconds : what.duration() + 2 * seconds;
  }
  time_point longest_freeze() const {
    time_point longest = 0;
    for (const fault& each : struck_) longest = std::max(longest, each.duration());
    return longest;
  }

  static bool loses_frames(const fault& what) {
    return what.kind != fault_kind::freeze && what.kind != fault_kind::write &&
           what.kind != fault_kind::read;
  }
  static bool strike(simulated::world& all, const fault& what) {
    std::shared_ptr<simulated::byte_link> link;
    for (const auto& each : all.links) {
      const std::set<int> ends{each.ranks[0], each.ranks[1]};
      if (ends.count(what.rank) != 0 && ends.count(what.peer) != 0) link = each.link;
    }
    switch (what.kind) {
      case fault_kind::kill:
        all.kill(what.rank);
        return true;
      case fault_kind::cut:
        all.cut(what.rank, what.peer);
        return true;
      case fault_kind::freeze:
        all.freeze(what.rank, what.duration());
        return true;
      case fault_kind::reset:
        if (link != nullptr) simulated::world::reset(*link);
        return link != nullptr;
      case fault_kind::flip:
        if (link != nullptr) link->flips_a_bit = true;
        return link != nullptr;
      case fault_kind::write:
        all.time.next_write = what.amount;
        return true;
      case fault_kind::read:
        all.time.next_read = what.amount;
        return true;
    }
    return false;
  }

  /// What the connection of two ranks that have finished still keeps from `source` to `dest`. Uses
  /// up the credit.
  static std::string leftover(virtual_rank& source, virtual_rank& dest) {
    for (const virtual_rank* const each : {&source, &dest}) {
      if (!each->is_done() || each->is_dead || each->state().failed()) return {};
    }
    interprocess::connection& out = *source.connection_to(dest.rank());
    interprocess::connection& in = *dest.connection_to(source.rank());
    const std::string names = std::to_string(source.rank()) + " to " + std::to_string(dest.rank());
    if (out.is_busy()) return "frames or sends are left from rank " + names;
    if (in.flow.rts_waiting != 0) return "an RTS is left from rank " + names;
    if (dest.matching().posted_count() + dest.matching().unexpected_count() != 0) {
      return "receives or messages are left on rank " + std::to_string(dest.rank());
    }
    std::size_t credit = 0;
    for (std::size_t size = 65'536; size > 0; size /= 2) {
      while (out.flow.spend(size)) credit += interprocess::credit_cost(size);
    }
    for (std::size_t calls = 1, returned = 0; returned == 0; ++calls) {
      returned = in.flow.consumed(0);
      if (returned != 0) credit += returned - calls * interprocess::credit_cost(0);
    }
    const std::size_t missing = interprocess::credit_window - credit;
    return missing <= interprocess::credit_cost(0) ? "" : "credit is lost from rank " + names;
  }

  std::string judge(const virtual_rank& rank) {
    const member& own = member_of(rank.rank());
    const std::string name = "rank " + std::to_string(rank.rank());
    if (own.wrong != 0) return name + " has other bytes than it should";
    if (rank.is_dead) return {};
    if (own.is_written_late || !own.memory.are_poisoned()) {
      return name + ": memory was written after its operation had ended";
    }
    const failure& why = rank.state().reason();
    if (why.code != errc{} && !is_planned(rank.rank(), why)) {
      return name + " fails otherwise than planned: " + to_text(why);
    }
    if (why.code == errc{} && !own.has_finished) return name + " ends without a reason";
    return {};
  }

  /// Whether a fault explains why a rank's communicator has failed.
  bool is_planned(int rank, const failure& why) {
    const bool is_lost = why.code == errc::peer_failed;
    const bool is_late = why.code == errc::timeout;
    bool any_late = false;
    for (const fault& each : struck_) {
      const bool is_rank = why.culprit == each.rank;
      const bool is_either = is_rank || why.culprit == each.peer;
      switch (each.kind) {
        case fault_kind::kill:
          if (is_lost && is_rank) return true;
          break;
        case fault_kind::cut:
          // A rank may be told by its peer that it is late itself. If the deadline comes before the
          // cut shows, all ranks may have been heard of, because the other direction still works.
          if (is_late && why.culprit < 0 && setup_.limit() < 7 * seconds) {
            ++undecided_;
            return true;
          }
          if (is_either && (is_late || (is_lost && why.culprit != rank))) return true;
          any_late = true;
          break;
        case fault_kind::reset:
          if (is_lost && is_either && why.culprit != rank) return true;
          break;
        case fault_kind::flip:
          if ((is_lost || why.code == errc::protocol_error) && is_either) return true;
          break;
        case fault_kind::freeze:
          if (each.duration() < setup_.limit()) break;
          if (is_late && is_rank) return true;
          any_late = true;
          break;
        case fault_kind::write:
        case fault_kind::read:
          break;
      }
    }
    // A message is late because of its peer, which may itself wait for another rank.
    const bool is_message = why.operation == collective::send || why.operation == collective::recv;
    const bool is_of_peer = any_late && is_late && is_message && why.culprit != why.observer;
    undecided_ += is_of_peer;
    return is_of_peer;
  }

  const scenario setup_;
  std::vector<fault> struck_;
  std::string verdict_;
  std::uint64_t trace_ = 0;
  int events_ = 0;
  int failed_ = 0;
  int undecided_ = 0;
};

/// The command that runs one scenario again.
std::string replay(const std::string& which) { return which + " " + program_invocation_name; }

/// What the trials of one test case have shown.
struct summary {
  int trials = 0;
  int failed = 0;
  int undecided = 0;

  void print(const std::string& what) const {
    MESSAGE(trials << " scenarios " << what << ", " << failed << " ranks failed, of which "
                   << undecided << " named no rank, or a peer that waited itself");
  }
};

/// The scenario ends as it must and frees all its memory. Every eighth one is run twice and gives
/// the same trace.
void check(const scenario& setup, const std::string& again, summary& sum) {
  const std::size_t before = blocks_in_use;
  std::uint64_t trace = 0;
  const auto run = [&] {
    const trial one(setup);
    if (!one.verdict().empty()) {
      INFO("replay: ", replay(again));
      INFO("scenario: ", setup.text());
      REQUIRE(one.verdict() == "");
    }
    trace = one.trace();
    return std::pair(one.failed(), one.undecided());
  };
  const auto [failed, undecided] = run();
  sum.failed += failed;
  sum.undecided += undecided;
  // The first run may fill caches.
  const std::size_t after = blocks_in_use;
  if (++sum.trials % 8 != 0 && after == before) return;
  const std::uint64_t first = trace;
  (void)run();
  const std::size_t at_end = blocks_in_use;
  INFO("replay: ", replay(again));
  REQUIRE(trace == first);
  REQUIRE(at_end == after);
}
void check(const scenario& setup, summary& sum) {
  check(setup, "COLLS_SIM_SCENARIO='" + setup.text() + "'", sum);
}

int events_of(const scenario& undisturbed) {
  const trial whole(undisturbed);
  REQUIRE(whole.verdict() == "");
  REQUIRE(whole.failed() == 0);
  return whole.events();
}

/// Whether no variable of the environment selects a single scenario.
bool runs_all() {
  return std::getenv("COLLS_SIM_SEED") == nullptr && std::getenv("COLLS_SIM_SCENARIO") == nullptr;
}

/// Calls `each(setup, event, strike)` for every event of every program. `strike(fault)` checks the
/// scenario in which the fault comes after the event. Returns the number of ranks that failed.
template <class Each>
int at_every_event(const std::string& what, const scenario& base, const Each& each) {
  summary sum;
  int events = 0;
  for (const program run : {program::collectives, program::messages, program::window}) {
    for (const int ranks : {2, 3}) {
      if (run == program::window && ranks == 3) continue;
      scenario setup = base;
      setup.what = run;
      setup.ranks = ranks;
      const int last = events_of(setup);
      events += last;
      for (int event = 1; event < last; ++event) {
        const auto strike = [&](fault one) {
          one.event = event;
          setup.faults = {one};
          check(setup, sum);
        };
        each(setup, event, strike);
      }
    }
  }
  sum.print(what + " at " + std::to_string(events) + " events");
  return sum.failed;
}

std::uint64_t draw(std::mt19937_64& random, std::uint64_t below) { return random() % below; }

scenario drawn(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  scenario made;
  made.what = static_cast<program>(draw(random, 3));
  made.ranks = 2 + static_cast<int>(draw(random, 2));
  made.seed = random() >> 32;
  made.checks = draw(random, 2) == 0;
  made.timeout = draw(random, 2) == 0 ? 3000 : 20'000;
  for (int i = 0; i < 2; ++i) {
    fault& each = made.faults.emplace_back();
    each.kind = static_cast<fault_kind>(draw(random, 7));
    if (each.kind == fault_kind::flip && !made.checks) each.kind = fault_kind::cut;
    const auto ranks = static_cast<std::uint64_t>(made.ranks);
    const std::uint64_t rank = draw(random, ranks);
    each.rank = static_cast<int>(rank);
    each.peer = static_cast<int>((rank + 1 + draw(random, ranks - 1)) % ranks);
    each.event = 1 + static_cast<int>(draw(random, draw(random, 2) == 0 ? 40 : 400));
    const bool is_long = draw(random, 3) == 0;
    each.amount = each.kind == fault_kind::freeze ? (is_long ? made.timeout + 1000 : 300)
                                                  : 1 + draw(random, 45);
  }
  if (made.faults[0].event > made.faults[1].event) std::swap(made.faults[0], made.faults[1]);
  return made;
}

}  // namespace

TEST_CASE("a rank that dies at any event is named by all that need it") {
  if (!runs_all()) return;
  const auto deaths = [](const scenario& setup, int, const auto& strike) {
    for (int rank = 0; rank < setup.ranks; ++rank) strike({fault_kind::kill, 0, rank});
  };
  CHECK(at_every_event("with a death", {}, deaths) > 1000);
  CHECK(at_every_event("with checksums and a death", {.seed = 2, .checks = true}, deaths) > 1000);
}

TEST_CASE("a link that is cut in one direction at any event ends its ranks in time") {
  if (!runs_all()) return;
  const auto cuts = [](const scenario& setup, int, const auto& strike) {
    for (int rank = 0; rank < setup.ranks; ++rank) {
      for (int peer = 0; peer < setup.ranks; ++peer) {
        if (peer != rank) strike({fault_kind::cut, 0, rank, peer});
      }
    }
  };
  CHECK(at_every_event("with a cut", {}, cuts) > 1000);
}

TEST_CASE("a rank that is frozen at any event misses nothing, or is named at the deadline") {
  if (!runs_all()) return;
  const scenario base{.timeout = 3000};
  const auto short_ones = [](const scenario& setup, int, const auto& strike) {
    for (int rank = 0; rank < setup.ranks; ++rank) strike({fault_kind::freeze, 0, rank, 0, 300});
  };
  CHECK(at_every_event("with a short freeze", base, short_ones) == 0);
  const auto long_ones = [](const scenario& setup, int, const auto& strike) {
    for (int rank = 0; rank < setup.ranks; ++rank) strike({fault_kind::freeze, 0, rank, 0, 4000});
  };
  CHECK(at_every_event("with a long freeze", base, long_ones) > 1000);
}

TEST_CASE("reads and writes may be split at any byte of a header") {
  if (!runs_all()) return;
  for (const bool checks : {false, true}) {
    const auto splits = [](const scenario&, int event, const auto& strike) {
      const std::uint64_t header = sizeof(interprocess::checked_header);
      const std::uint64_t drawn = 1 + static_cast<std::uint64_t>(event) * 7 % header;
      for (std::uint64_t bytes = 1; bytes <= header + 1; ++bytes) {
        if (event % 25 != 1 && bytes != drawn) continue;
        strike({fault_kind::write, 0, 0, 0, bytes});
        strike({fault_kind::read, 0, 0, 0, bytes});
      }
    };
    CHECK(at_every_event("with a split", {.checks = checks}, splits) == 0);
  }
}

TEST_CASE("two faults") {
  summary sum;
  const auto run_seed = [&](std::uint64_t seed) {
    check(drawn(seed), "COLLS_SIM_SEED=" + std::to_string(seed), sum);
  };
  if (const char* const one = std::getenv("COLLS_SIM_SEED")) {
    run_seed(std::strtoull(one, nullptr, 10));
    return;
  }
  if (const char* const text = std::getenv("COLLS_SIM_SCENARIO")) {
    check(scenario::parse(text), sum);
    return;
  }
  const char* const count = std::getenv("COLLS_SIM_SEEDS");
  const std::uint64_t seeds = count != nullptr ? std::strtoull(count, nullptr, 10) : 4000;
  REQUIRE(seeds > 0);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) run_seed(seed);
  sum.print("with two faults");
}
