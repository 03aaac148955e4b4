// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A trial runs a scenario and checks its outcome.

#include "calls.hpp"

#include <optional>

namespace sim {

using colls::errc;
using colls::simulated::ticks;

/// The outcome of one rank.
struct rank_outcome {
  bool ended = false;   // the rank's program ran to its end
  bool struck = false;  // a fault ended the rank's program, operation or communicator
  ticks time = 0;
  int good_calls = 0;             // consecutive calls that succeeded
  colls::failure reason;          // of the first call that failed
  colls::failure barrier_reason;  // of the barrier at the end
  std::string wrong;              // what is wrong after a call that succeeded
  std::vector<std::byte> held;    // all of the rank's memory when its program ended
};

/// Runs a scenario. Each rank makes its calls. If something may fail, all ranks enter a barrier
/// after them, so that ranks that are past the failure learn of it too.
class trial final : colls::simulated_world::fault_handler {
 public:
  explicit trial(const scenario& setup) : setup_(setup), world_(setup.ranks, setup.settings()) {
    world_.set_fault_handler(static_cast<fault_handler&>(*this));
    for (int rank = 0; rank < setup.ranks; ++rank) {
      members_.push_back(std::make_unique<member>());
      member& one = *members_.back();
      one.comm = colls::simulated::join(world_, rank);
      for (int k = 0; k < setup.calls; ++k) {
        one.calls.push_back(std::make_unique<call>(setup, rank, k));
      }
    }
    world_.run_until([&] { return world_.is_quiescent(); });
    world_.reset_counters();
    for (int rank = 0; rank < setup.ranks; ++rank) begin(rank);
    const auto all_ended = [&] {
      for (const auto& each : members_) {
        if (!each->outcome.ended && !each->outcome.struck) return false;
      }
      return true;
    };
    deadlocked_ = !world_.run_until(all_ended);
    if (deadlocked_) waiting_ = world_.waiting_report();
    end_time_ = world_.time();
    overdue_ = world_.overdue();
    finish();
  }
  ~trial() {
    for (const auto& each : members_) each->end();
  }

  /// Says what is wrong; empty if nothing is.
  std::string verdict() const;
  /// A hash of everything that was observed: equal in two runs of one scenario.
  std::uint64_t print() const {
    std::uint64_t hash = colls::mix(static_cast<std::uint64_t>(end_time_), world_.messages());
    for (const auto& each : world_.trace()) {
      hash = colls::mix(
          hash, static_cast<std::uint64_t>(each.source) << 32 | static_cast<unsigned>(each.dest));
      for (const ticks time : {each.started, each.left, each.arrived, each.received}) {
        hash = colls::mix(hash, static_cast<std::uint64_t>(time));
      }
    }
    for (const auto& each : members_) {
      hash = colls::mix(hash, static_cast<std::uint64_t>(each->outcome.time));
      hash = colls::mix(hash, static_cast<std::uint64_t>(each->outcome.reason.code));
      hash = colls::mix(hash, static_cast<std::uint64_t>(each->outcome.reason.culprit));
    }
    return hash;
  }
  /// The results of all calls of a rank.
  std::vector<std::byte> results(int rank) const {
    std::vector<std::byte> all;
    for (const auto& each : members_[index(rank)]->calls) {
      const auto more = each->result();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }
  const rank_outcome& outcome_of(int rank) const { return members_[index(rank)]->outcome; }
  bool was_struck() const { return !world_.injected_faults().empty(); }
  const colls::simulated_world& world() const { return world_; }

 private:
  struct member {
    communicator comm;
    std::vector<std::unique_ptr<call>> calls;
    std::vector<colls::operation<>> operations;
    rank_outcome outcome;
    colls::task<> program;
    struct root : colls::completion {
    } done;

    void end() {
      done.withdraw();
      program = {};
      operations.clear();
    }
    void keep() {
      for (const auto& each : calls) {
        const auto more = each->contents();
        outcome.held.insert(outcome.held.end(), more.begin(), more.end());
      }
    }
  };

  void begin(int rank) {
    member& one = *members_[index(rank)];
    one.done.bind([](colls::completion&) noexcept {},
                  colls::completion(nullptr, &world_[rank].queue()));
    one.program = live(one);
    (void)one.program.start(one.done);
  }

  static void note(rank_outcome& outcome, const colls::failure& why) {
    if (outcome.reason.code == errc{}) outcome.reason = why;
  }

  colls::task<> live(member& me) {
    const int calls = setup_.calls;
    if (setup_.overlapped) {
      for (const auto& each : me.calls) me.operations.push_back(each->start(me.comm));
    }
    for (int k = 0; k < calls && me.outcome.reason.code == errc{}; ++k) {
      if (!setup_.overlapped) me.operations.push_back(me.calls[index(k)]->start(me.comm));
      // Operations may be awaited in any order.
      const int next = setup_.overlapped ? calls - 1 - k : k;
      try {
        co_await me.operations[index(next)];
      } catch (const colls::error& failed) {
        note(me.outcome, failed.record());
      }
    }
    if (me.outcome.reason.code == errc{}) {
      for (const auto& each : me.calls) {
        if (me.outcome.wrong.empty()) me.outcome.wrong = each->wrong();
      }
      me.outcome.good_calls = calls;
    }
    me.operations.clear();
    if (setup_.plan.is_fatal() && me.comm) {
      try {
        co_await me.comm.barrier();
      } catch (const colls::error& failed) {
        me.outcome.barrier_reason = failed.record();
      }
    }
    me.outcome.ended = true;
    me.outcome.time = world_.time();
    me.keep();
  }

  void handle(const fault& each) override {
    member& one = *members_[index(each.rank)];
    if (one.outcome.ended || one.outcome.struck) return;
    one.outcome.struck = true;
    one.outcome.time = world_.time();
    one.done.withdraw();
    if (each.type == fault::kind::destroy) one.comm = {};
    one.program = {};
    one.operations.clear();
    if (each.type != fault::kind::cancel) one.comm = {};
    one.keep();
  }

  // Closes all communicators, and drops the messages that are still in transit.
  void finish() {
    for (const auto& each : members_) {
      each->end();
      each->comm = {};
    }
    while (world_.poll()) {
    }
    for (const auto& each : members_) {
      std::vector<std::byte> now;
      for (const auto& one : each->calls) {
        const auto more = one->contents();
        now.insert(now.end(), more.begin(), more.end());
      }
      const bool was_done = each->outcome.ended || each->outcome.struck;
      if (was_done && now != each->outcome.held && cleanup_error_.empty()) {
        cleanup_error_ = "memory was written after its operation had ended";
      }
    }
    if (world_.in_flight() != 0) {
      cleanup_error_ = std::to_string(world_.in_flight()) + " messages leaked";
    }
  }

  std::string judge_good(int rank) const;
  std::string judge_failed(int rank) const;
  bool is_planned(int rank, const colls::failure& why) const;

  const scenario setup_;
  colls::simulated_world world_;
  std::vector<std::unique_ptr<member>> members_;
  bool deadlocked_ = false;
  std::string waiting_;
  std::string cleanup_error_;
  ticks end_time_ = 0;
  std::uint64_t overdue_ = 0;
};

inline std::string trial::verdict() const {
  if (deadlocked_) return "deadlock:\n" + waiting_;
  if (!cleanup_error_.empty()) return cleanup_error_;
  for (int rank = 0; rank < setup_.ranks; ++rank) {
    const std::string wrong = setup_.plan.is_fatal() ? judge_failed(rank) : judge_good(rank);
    if (!wrong.empty()) return "rank " + std::to_string(rank) + ": " + wrong;
  }
  bool delayed = false;
  for (const fault& each : setup_.plan.faults) {
    delayed |= each.type == fault::kind::freeze || each.type == fault::kind::clog;
  }
  if (!setup_.plan.is_fatal() && !delayed && overdue_ != 0)
    return "something was late without a reason";
  return {};
}

/// Judges a rank in a scenario without fatal faults: its calls succeed, or all ranks find that the
/// algorithm is not applicable.
inline std::string trial::judge_good(int rank) const {
  const rank_outcome& outcome = outcome_of(rank);
  if (outcome.reason.code == errc::not_applicable &&
      outcome_of(0).reason.code == errc::not_applicable)
    return {};
  if (outcome.reason.code != errc{}) return colls::to_text(outcome.reason);
  return outcome.wrong;
}

/// Whether the plan explains why a rank's operation failed.
inline bool trial::is_planned(int rank, const colls::failure& why) const {
  using kind = fault::kind;
  for (const fault& each : setup_.plan.faults) {
    const bool is_culprit = why.culprit == each.rank;
    switch (each.type) {
      case kind::kill:
      case kind::half_open:
        if (why.code == errc::peer_failed && is_culprit) return true;
        break;
      case kind::isolate:
        if (why.code == errc::peer_failed && (is_culprit || rank == each.rank)) return true;
        break;
      case kind::cut:
      case kind::cut_both:
        if (why.code == errc::peer_failed && (is_culprit || why.culprit == each.peer)) return true;
        break;
      case kind::flip:
        if (why.code == errc::protocol_error && is_culprit) return true;
        break;
      case kind::cancel:
        if (why.code == errc::cancelled && is_culprit) return true;
        break;
      case kind::destroy:
        if (why.code == errc::closed && is_culprit) return true;
        break;
      case kind::wrong_argument: {
        const bool refused = why.code == errc::not_applicable || why.code == errc::invalid_argument;
        if (why.code == errc::mismatch || (refused && rank == each.rank)) return true;
        break;
      }
      default:
        break;
    }
  }
  return false;
}

/// Judges a rank in a scenario with a fatal fault: its results are right, or it fails as planned
/// and in time.
inline std::string trial::judge_failed(int rank) const {
  const rank_outcome& outcome = outcome_of(rank);
  if (outcome.struck) return {};
  if (outcome.reason.code == errc::not_applicable &&
      outcome_of(0).reason.code == errc::not_applicable)
    return {};
  bool calls_wrongly = false;
  bool disagrees = false;  // every rank must report it
  ticks began = 0;
  for (const fault& each : setup_.plan.faults) {
    disagrees |= each.type == fault::kind::wrong_argument;
    calls_wrongly |= each.type == fault::kind::wrong_argument && each.rank == rank;
    // Faults that only take time may do so after all the others.
    if (each.duration != 0) began += each.duration;
  }
  for (const auto& each : world_.injected_faults())
    began = std::max(began, each.time + each.fault.duration);
  for (const colls::failure* const why : {&outcome.reason, &outcome.barrier_reason}) {
    if (why->code == errc{}) continue;
    if (!is_planned(rank, *why)) return "failed otherwise than planned: " + colls::to_text(*why);
    if (!was_struck() && !disagrees) return "failed before anything had happened";
  }
  if (outcome.time > began + colls::simulated::to_ticks(20 * colls::seconds))
    return "took too long to end";
  if (disagrees && outcome.barrier_reason.code != errc::mismatch) {
    return "never reported the mismatch";
  }
  return calls_wrongly ? std::string() : outcome.wrong;
}

}  // namespace sim
