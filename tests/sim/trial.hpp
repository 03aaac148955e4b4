// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A trial: a scenario as it went, and whether it went as it must.

#include "calls.hpp"

#include <optional>

namespace sim {

using colls::errc;
using colls::simulated::ticks;

/// How one rank fared.
struct fate {
  bool ended = false;   // its program got to its end
  bool struck = false;  // the plan took its program, its operation or its communicator
  ticks when = 0;
  int good_calls = 0;           // those that went well, one after another
  colls::failure why;           // of the first that did not
  colls::failure farewell;      // of the barrier at the end
  std::string wrong;            // what a call that went well left behind
  std::vector<std::byte> held;  // all of its memory when it was done with it
};

/// Runs a scenario. Each rank makes its calls; if something may fail, all meet in a barrier after
/// them, so that those who are past the failure learn of it too.
class trial final : colls::simulated_world::director {
 public:
  explicit trial(const scenario& of) : of_(of), world_(of.ranks, of.settings()) {
    world_.direct_by(static_cast<director&>(*this));
    for (int rank = 0; rank < of.ranks; ++rank) {
      members_.push_back(std::make_unique<member>());
      member& one = *members_.back();
      one.comm = colls::simulated::join(world_, rank);
      for (int k = 0; k < of.calls; ++k) one.calls.push_back(std::make_unique<call>(of, rank, k));
    }
    world_.run_until([&] { return world_.is_silent(); });
    world_.forget_counts();
    for (int rank = 0; rank < of.ranks; ++rank) begin(rank);
    const auto all_ended = [&] {
      for (const auto& each : members_) {
        if (!each->how.ended && !each->how.struck) return false;
      }
      return true;
    };
    silent_ = !world_.run_until(all_ended);
    if (silent_) waiting_ = world_.waiting();
    over_ = world_.time();
    overdue_ = world_.overdue();
    finish();
  }
  ~trial() {
    for (const auto& each : members_) each->end();
  }

  /// What is wrong, or nothing.
  std::string verdict() const;
  /// Everything that was seen, as a number: equal in two runs of one scenario.
  std::uint64_t print() const {
    std::uint64_t hash = colls::mix(static_cast<std::uint64_t>(over_), world_.messages());
    for (const auto& each : world_.trace()) {
      hash = colls::mix(
          hash, static_cast<std::uint64_t>(each.from) << 32 | static_cast<unsigned>(each.to));
      for (const ticks time : {each.started, each.left, each.arrived, each.received}) {
        hash = colls::mix(hash, static_cast<std::uint64_t>(time));
      }
    }
    for (const auto& each : members_) {
      hash = colls::mix(hash, static_cast<std::uint64_t>(each->how.when));
      hash = colls::mix(hash, static_cast<std::uint64_t>(each->how.why.code));
      hash = colls::mix(hash, static_cast<std::uint64_t>(each->how.why.culprit));
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
  const fate& of(int rank) const { return members_[index(rank)]->how; }
  bool was_struck() const { return !world_.happened().empty(); }
  const colls::simulated_world& world() const { return world_; }

 private:
  struct member {
    communicator comm;
    std::vector<std::unique_ptr<call>> calls;
    std::vector<colls::operation<>> under_way;
    fate how;
    colls::task<> program;
    struct root : colls::completion {
    } done;

    void end() {
      done.withdraw();
      program = {};
      under_way.clear();
    }
    void keep() {
      for (const auto& each : calls) {
        const auto more = each->contents();
        how.held.insert(how.held.end(), more.begin(), more.end());
      }
    }
  };

  void begin(int rank) {
    member& one = *members_[index(rank)];
    one.done.become([](colls::completion&) noexcept {},
                    colls::completion(nullptr, &world_[rank].queue()));
    one.program = live(one);
    (void)one.program.start(one.done);
  }

  static void note(fate& how, const colls::failure& why) {
    if (how.why.code == errc{}) how.why = why;
  }

  colls::task<> live(member& me) {
    const int calls = of_.calls;
    if (of_.overlapped) {
      for (const auto& each : me.calls) me.under_way.push_back(each->start(me.comm));
    }
    for (int k = 0; k < calls && me.how.why.code == errc{}; ++k) {
      if (!of_.overlapped) me.under_way.push_back(me.calls[index(k)]->start(me.comm));
      // Operations may be awaited in any order.
      const int at = of_.overlapped ? calls - 1 - k : k;
      try {
        co_await me.under_way[index(at)];
      } catch (const colls::error& failed) {
        note(me.how, failed.record());
      }
    }
    if (me.how.why.code == errc{}) {
      for (const auto& each : me.calls) {
        if (me.how.wrong.empty()) me.how.wrong = each->wrong();
      }
      me.how.good_calls = calls;
    }
    me.under_way.clear();
    if (of_.suffers.is_fatal() && me.comm) {
      try {
        co_await me.comm.barrier();
      } catch (const colls::error& failed) {
        me.how.farewell = failed.record();
      }
    }
    me.how.ended = true;
    me.how.when = world_.time();
    me.keep();
  }

  void strike(const fault& what) override {
    member& one = *members_[index(what.rank)];
    if (one.how.ended || one.how.struck) return;
    one.how.struck = true;
    one.how.when = world_.time();
    one.done.withdraw();
    if (what.what == fault::kind::destroy) one.comm = {};
    one.program = {};
    one.under_way.clear();
    if (what.what != fault::kind::cancel) one.comm = {};
    one.keep();
  }

  // All close, and whatever is still on its way goes nowhere.
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
      const bool was_done = each->how.ended || each->how.struck;
      if (was_done && now != each->how.held && spoiled_.empty()) {
        spoiled_ = "memory was written after its operation had ended";
      }
    }
    if (world_.in_flight() != 0) spoiled_ = std::to_string(world_.in_flight()) + " messages leaked";
  }

  std::string judge_good(int rank) const;
  std::string judge_failed(int rank) const;
  bool is_planned(int rank, const colls::failure& why) const;

  const scenario of_;
  colls::simulated_world world_;
  std::vector<std::unique_ptr<member>> members_;
  bool silent_ = false;
  std::string waiting_;
  std::string spoiled_;
  ticks over_ = 0;
  std::uint64_t overdue_ = 0;
};

inline std::string trial::verdict() const {
  if (silent_) return "deadlock:\n" + waiting_;
  if (!spoiled_.empty()) return spoiled_;
  for (int rank = 0; rank < of_.ranks; ++rank) {
    const std::string wrong = of_.suffers.is_fatal() ? judge_failed(rank) : judge_good(rank);
    if (!wrong.empty()) return "rank " + std::to_string(rank) + ": " + wrong;
  }
  bool held_up = false;
  for (const fault& each : of_.suffers.faults) {
    held_up |= each.what == fault::kind::freeze || each.what == fault::kind::clog;
  }
  if (!of_.suffers.is_fatal() && !held_up && overdue_ != 0)
    return "something was late without a reason";
  return {};
}

/// Nothing that can fail was planned. All ranks may find that the algorithm does not apply.
inline std::string trial::judge_good(int rank) const {
  const fate& how = of(rank);
  if (how.why.code == errc::not_applicable && of(0).why.code == errc::not_applicable) return {};
  if (how.why.code != errc{}) return colls::to_text(how.why);
  return how.wrong;
}

/// Whether the plan explains why a rank's operation failed.
inline bool trial::is_planned(int rank, const colls::failure& why) const {
  using kind = fault::kind;
  for (const fault& each : of_.suffers.faults) {
    const bool by_it = why.culprit == each.rank;
    switch (each.what) {
      case kind::kill:
      case kind::half_open:
        if (why.code == errc::peer_failed && by_it) return true;
        break;
      case kind::isolate:
        if (why.code == errc::peer_failed && (by_it || rank == each.rank)) return true;
        break;
      case kind::cut:
      case kind::cut_both:
        if (why.code == errc::peer_failed && (by_it || why.culprit == each.peer)) return true;
        break;
      case kind::flip:
        if (why.code == errc::protocol_error && by_it) return true;
        break;
      case kind::cancel:
        if (why.code == errc::cancelled && by_it) return true;
        break;
      case kind::destroy:
        if (why.code == errc::closed && by_it) return true;
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

/// Something that can fail was planned: a right result, or the planned failure in good time.
inline std::string trial::judge_failed(int rank) const {
  const fate& how = of(rank);
  if (how.struck) return {};
  if (how.why.code == errc::not_applicable && of(0).why.code == errc::not_applicable) return {};
  bool calls_wrongly = false;
  bool disagrees = false;  // all must find out
  ticks began = 0;
  for (const fault& each : of_.suffers.faults) {
    disagrees |= each.what == fault::kind::wrong_argument;
    calls_wrongly |= each.what == fault::kind::wrong_argument && each.rank == rank;
    // Those that only take time may take it after all the others.
    if (each.duration != 0) began += each.duration;
  }
  for (const auto& each : world_.happened())
    began = std::max(began, each.when + each.what.duration);
  for (const colls::failure* const why : {&how.why, &how.farewell}) {
    if (why->code == errc{}) continue;
    if (!is_planned(rank, *why)) return "failed otherwise than planned: " + colls::to_text(*why);
    if (!was_struck() && !disagrees) return "failed before anything had happened";
  }
  if (how.when > began + colls::simulated::to_ticks(20 * colls::seconds))
    return "took too long to end";
  if (disagrees && how.farewell.code != errc::mismatch) return "never learned of the mismatch";
  return calls_wrongly ? std::string() : how.wrong;
}

}  // namespace sim
