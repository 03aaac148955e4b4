// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// faults: what goes wrong in a simulated run, by hand or drawn from a seed, and its text form.

#include <colls/base/fingerprint.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/transport/simulated/network_model.hpp>

namespace colls::simulated {

/// One thing that happens to `rank` just before its `event`-th event: every send or receive that it
/// starts and every message, word or end of a send that reaches it counts, from 1 on.
struct fault {
  enum class kind : std::uint8_t {
    kill,            // its process ends: those with a link to it see the end of the file
    half_open,       // its host vanishes without a word
    isolate,         // it lives, and nothing passes to or from it any more
    cut,             // nothing passes from it to `peer` any more
    cut_both,        // the same, both ways
    clog,            // what it sends to `peer` stands still for `duration`
    freeze,          // it stands still for `duration`
    flip,            // a bit of its `event`-th message; the checksum tells
    cancel,          // it drops the operation that is under way
    destroy,         // it destroys its communicator
    wrong_argument,  // from the beginning: it calls with another `argument` than the others
  };
  enum class argument : std::uint8_t { count, root, op, type, order, algorithm };

  kind what = kind::kill;
  int rank = 0;
  int peer = -1;
  std::uint64_t event = 0;
  ticks duration = 0;
  argument wrong = argument::count;

  friend bool operator==(const fault&, const fault&) = default;
};

/// Everything that a run suffers.
///
/// As text, one sentence a line (or after a `;`, and `#` begins a remark):
/// ```
/// kill 2 @17            half_open 2 @17      isolate 2 @17     cancel 2 @17     destroy 2 @17
/// freeze 2 @17 3s       cut 2>3 @17          cut 2-3 @17       clog 2>3 @17 2s  flip 2 @5
/// wrong_argument 2 count|root|op|type|order|algorithm
/// delay 5us             # each message takes up to that much longer, at random
/// pieces                # a message comes bit by bit
/// eager 0               # bytes that may be sent before they are asked for
/// no_store              # nobody but the links tells of a failure
/// ```
struct plan {
  std::vector<fault> faults;
  ticks delay = 0;
  bool pieces = false;
  bool store = true;
  std::size_t eager_limit = colls::eager_limit;

  friend bool operator==(const plan&, const plan&) = default;

  bool empty() const { return *this == plan(); }
  /// Whether an operation may fail by it; what merely takes time or another order cannot.
  bool is_fatal() const {
    for (const fault& each : faults) {
      if (each.what != fault::kind::clog && each.what != fault::kind::freeze) return true;
    }
    return false;
  }

  static plan parse(std::string_view text);
  std::string text() const;
};

namespace detail {

inline constexpr const char* fault_names[] = {"kill",   "half_open", "isolate",       "cut",
                                              "cut",    "clog",      "freeze",        "flip",
                                              "cancel", "destroy",   "wrong_argument"};
inline constexpr const char* argument_names[] = {"count", "root",  "op",
                                                 "type",  "order", "algorithm"};

/// The words of a sentence, one after another; whatever does not fit is the user's error.
class sentence {
 public:
  explicit sentence(std::string_view text) : all_(text), rest_(text) {}

  std::string_view word() {
    if (is_over()) fail("it ends too early");
    rest_.remove_prefix(rest_.find_first_not_of(blank));
    const std::string_view found = rest_.substr(0, rest_.find_first_of(blank));
    rest_.remove_prefix(found.size());
    return found;
  }
  bool is_over() const { return rest_.find_first_not_of(blank) == std::string_view::npos; }
  void end() {
    if (!is_over()) fail("it goes on too long");
  }
  template <class Number>
  Number number(std::string_view digits, const char* of) {
    Number found{};
    if (!parse_number(digits, found) || found < 0) fail(of);
    return found;
  }
  int rank(std::string_view digits) { return number<int>(digits, "a rank is a number from 0 on"); }
  std::uint64_t event() {
    const std::string_view at = word();
    if (at.size() < 2 || at.front() != '@') fail("an event is written @1, @2, ...");
    const auto found = number<std::uint64_t>(at.substr(1), "an event is written @1, @2, ...");
    if (found == 0) fail("events count from 1");
    return found;
  }
  ticks duration() {
    const std::string_view text = word();
    const std::size_t unit = text.find_first_not_of("0123456789");
    constexpr const char* how = "a time is a whole number of ns, us, ms or s: 5us";
    if (unit == std::string_view::npos || unit == 0) fail(how);
    const auto count = number<std::int64_t>(text.substr(0, unit), how);
    ticks length = 0;
    if (text.substr(unit) == "ns") length = per_nanosecond;
    if (text.substr(unit) == "us") length = 1000 * per_nanosecond;
    if (text.substr(unit) == "ms") length = to_ticks(milliseconds);
    if (text.substr(unit) == "s") length = to_ticks(seconds);
    if (length == 0 || count > to_ticks(100'000 * seconds) / length) fail(how);
    return count * length;
  }
  /// In one line that a terminal can show, whatever the plan is.
  [[noreturn]] void fail(const char* why) const {
    constexpr std::size_t most = 60;
    std::string shown(all_.substr(0, most));
    for (char& each : shown) {
      if (each < ' ' || each > '~') each = '?';
    }
    throw std::invalid_argument("the plan's '" + shown + (all_.size() > most ? "..." : "") +
                                "': " + why);
  }

 private:
  static constexpr const char* blank = " \t\r";

  std::string_view all_;
  std::string_view rest_;
};

template <std::size_t N>
int name_index(const char* const (&names)[N], std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<int>(i);
  }
  return -1;
}

inline fault parse_fault(sentence& text, std::string_view name) {
  const int known = name_index(fault_names, name);
  if (known < 0) text.fail("no such fault");
  fault made;
  made.what = static_cast<fault::kind>(known);
  std::string_view who = text.word();
  if (made.what == fault::kind::cut || made.what == fault::kind::clog) {
    const std::size_t arrow = who.find_first_of(">-");
    if (arrow == std::string_view::npos) text.fail("a link is written 2>3, or 2-3 for both ways");
    if (who[arrow] == '-') {
      if (made.what == fault::kind::clog) text.fail("a link is clogged one way: 2>3");
      made.what = fault::kind::cut_both;
    }
    made.peer = text.rank(who.substr(arrow + 1));
    who = who.substr(0, arrow);
  }
  made.rank = text.rank(who);
  if (made.rank == made.peer) text.fail("a link is between two ranks");
  if (made.what == fault::kind::wrong_argument) {
    const int which = name_index(argument_names, text.word());
    if (which < 0) text.fail("an argument is count, root, op, type, order or algorithm");
    made.wrong = static_cast<fault::argument>(which);
    return made;
  }
  made.event = text.event();
  if (made.what == fault::kind::clog || made.what == fault::kind::freeze) {
    made.duration = text.duration();
  }
  return made;
}

inline std::string duration_text(ticks length) {
  if (length % to_ticks(seconds) == 0) return std::to_string(length / to_ticks(seconds)) + "s";
  if (length % to_ticks(milliseconds) == 0) {
    return std::to_string(length / to_ticks(milliseconds)) + "ms";
  }
  return std::to_string(length / per_nanosecond) + "ns";
}

}  // namespace detail

/// Throws std::invalid_argument that names the sentence it cannot read.
inline plan plan::parse(std::string_view text) {
  plan made;
  while (!text.empty()) {
    std::string_view line = detail::next_part(text, '\n');
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view part = detail::next_part(line, ';');
      detail::sentence sentence(part);
      if (sentence.is_over()) continue;
      const std::string_view name = sentence.word();
      if (name == "delay") {
        made.delay = sentence.duration();
      } else if (name == "pieces") {
        made.pieces = true;
      } else if (name == "no_store") {
        made.store = false;
      } else if (name == "eager") {
        made.eager_limit = sentence.number<std::size_t>(sentence.word(), "bytes are a number");
      } else {
        made.faults.push_back(detail::parse_fault(sentence, name));
      }
      sentence.end();
    }
  }
  return made;
}

inline std::string plan::text() const {
  std::string all;
  const auto add = [&](const std::string& sentence) {
    all += (all.empty() ? "" : "; ") + sentence;
  };
  for (const fault& each : faults) {
    std::string one = detail::fault_names[static_cast<std::size_t>(each.what)];
    one += " " + std::to_string(each.rank);
    if (each.peer >= 0)
      one += (each.what == fault::kind::cut_both ? "-" : ">") + std::to_string(each.peer);
    if (each.what == fault::kind::wrong_argument) {
      one += std::string(" ") + detail::argument_names[static_cast<std::size_t>(each.wrong)];
    } else {
      one += " @" + std::to_string(each.event);
    }
    if (each.duration != 0) one += " " + detail::duration_text(each.duration);
    add(one);
  }
  if (delay != 0) add("delay " + detail::duration_text(delay));
  if (pieces) add("pieces");
  if (!store) add("no_store");
  if (eager_limit != colls::eager_limit) add("eager " + std::to_string(eager_limit));
  return all;
}

}  // namespace colls::simulated
