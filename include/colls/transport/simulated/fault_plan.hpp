// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Fault plans, which specify what goes wrong in a simulated run, and the text form of a plan.

#include <colls/base/fingerprint.hpp>
#include <colls/base/network_cost.hpp>
#include <colls/transport/simulated/network_model.hpp>

namespace colls::simulated {

/// A fault of `rank`, injected just before the `event`-th event of this rank. Events are numbered
/// from 1. These are the events of a rank: the rank starts a send or a receive, a transmission of
/// the rank ends, a message or control message arrives at the rank, a further piece of a message
/// arrives, or the rank runs posted completions.
struct fault {
  enum class kind : std::uint8_t {
    kill,            // the rank's process ends, and connected peers see the end of the stream
    half_open,       // the rank's machine disappears without closing connections
    isolate,         // the rank keeps running, but no message passes to or from it
    cut,             // no message passes from the rank to `peer`
    cut_both,        // no message passes between the rank and `peer`
    clog,            // messages from the rank to `peer` are stalled for `duration`
    freeze,          // the rank makes no progress for `duration`
    flip,            // a bit of the rank's `event`-th message flips, so that its checksum is wrong
    cancel,          // the rank cancels the operation in flight
    destroy,         // the rank destroys its communicator
    wrong_argument,  // one argument that the rank passes differs from that of the other ranks
  };
  enum class argument : std::uint8_t { count, root, op, type, order, algorithm };

  kind type = kind::kill;
  int rank = 0;
  int peer = -1;
  std::uint64_t event = 0;
  ticks duration = 0;
  argument wrong_argument = argument::count;

  friend bool operator==(const fault&, const fault&) = default;
};

/// All faults of a run, and the settings that apply to the whole run.
///
/// The text form has one statement per line, or several statements separated by `;`. A `#` begins a
/// comment. These are examples of all statements:
/// ```
/// kill 2 @17            half_open 2 @17      isolate 2 @17     cancel 2 @17     destroy 2 @17
/// freeze 2 @17 3s       cut 2>3 @17          cut 2-3 @17       clog 2>3 @17 2s  flip 2 @5
/// wrong_argument 2 count|root|op|type|order|algorithm
/// delay 5us             # delays each message by a random time of at most 5 us
/// pieces                # messages arrive in pieces
/// eager 0               # sets the eager limit in bytes
/// no_store              # there is no store, so only connections report failures
/// ```
struct fault_plan {
  std::vector<fault> faults;
  ticks delay = 0;
  bool pieces = false;
  bool store = true;
  std::size_t eager_limit = colls::eager_limit;

  friend bool operator==(const fault_plan&, const fault_plan&) = default;

  bool empty() const { return *this == fault_plan(); }
  /// Returns whether the plan may make an operation fail. Faults that only delay a rank or its
  /// messages make no operation fail.
  bool is_fatal() const {
    for (const fault& entry : faults) {
      if (entry.type != fault::kind::clog && entry.type != fault::kind::freeze) return true;
    }
    return false;
  }

  /// Returns whether the other ranks know of each rank that fails by this plan that it has ended.
  bool proves_losses() const {
    for (const fault& entry : faults) {
      switch (entry.type) {
        case fault::kind::half_open:
        case fault::kind::isolate:
        case fault::kind::cut:
        case fault::kind::cut_both:
        case fault::kind::flip:
          return false;
        default:
          break;
      }
    }
    return true;
  }

  static fault_plan parse(std::string_view text);
  std::string text() const;
};

namespace detail {

inline constexpr const char* fault_names[] = {"kill",   "half_open", "isolate",       "cut",
                                              "cut",    "clog",      "freeze",        "flip",
                                              "cancel", "destroy",   "wrong_argument"};
inline constexpr const char* argument_names[] = {"count", "root",  "op",
                                                 "type",  "order", "algorithm"};

/// A parser for the tokens of one statement of a plan. Its functions throw std::invalid_argument if
/// the statement is invalid.
class statement {
 public:
  explicit statement(std::string_view text) : all_(text), rest_(text) {}

  std::string_view next_token() {
    if (is_at_end()) fail("it ends too early");
    rest_.remove_prefix(rest_.find_first_not_of(blank));
    const std::string_view token = rest_.substr(0, rest_.find_first_of(blank));
    rest_.remove_prefix(token.size());
    return token;
  }
  bool is_at_end() const { return rest_.find_first_not_of(blank) == std::string_view::npos; }
  void end() {
    if (!is_at_end()) fail("it goes on too long");
  }
  template <class Number>
  Number number(std::string_view digits, const char* message) {
    Number value{};
    if (!parse_number(digits, value) || value < 0) fail(message);
    return value;
  }
  int rank(std::string_view digits) { return number<int>(digits, "a rank is a number from 0 on"); }
  std::uint64_t event() {
    const std::string_view text = next_token();
    if (text.size() < 2 || text.front() != '@') fail("an event is written @1, @2, ...");
    const auto number_from_1 =
        number<std::uint64_t>(text.substr(1), "an event is written @1, @2, ...");
    if (number_from_1 == 0) fail("events count from 1");
    return number_from_1;
  }
  ticks duration() {
    const std::string_view text = next_token();
    const std::size_t unit = text.find_first_not_of("0123456789");
    constexpr const char* usage = "a time is an integer number of ns, us, ms or s: 5us";
    if (unit == std::string_view::npos || unit == 0) fail(usage);
    const auto count = number<std::int64_t>(text.substr(0, unit), usage);
    ticks length = 0;
    if (text.substr(unit) == "ns") length = per_nanosecond;
    if (text.substr(unit) == "us") length = 1000 * per_nanosecond;
    if (text.substr(unit) == "ms") length = to_ticks(milliseconds);
    if (text.substr(unit) == "s") length = to_ticks(seconds);
    if (length == 0 || count > to_ticks(100'000 * seconds) / length) fail(usage);
    return count * length;
  }
  /// Throws std::invalid_argument with a one-line message that is safe to print on a terminal.
  [[noreturn]] void fail(const char* message) const {
    constexpr std::size_t max_size = 60;
    std::string shown(all_.substr(0, max_size));
    for (char& character : shown) {
      if (character < ' ' || character > '~') character = '?';
    }
    throw std::invalid_argument("the plan's '" + shown + (all_.size() > max_size ? "..." : "") +
                                "': " + message);
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

inline fault parse_fault(statement& text, std::string_view name) {
  const int index = name_index(fault_names, name);
  if (index < 0) text.fail("no such fault");
  fault result;
  result.type = static_cast<fault::kind>(index);
  std::string_view ranks = text.next_token();
  if (result.type == fault::kind::cut || result.type == fault::kind::clog) {
    const std::size_t arrow = ranks.find_first_of(">-");
    if (arrow == std::string_view::npos) text.fail("a link is written 2>3, or 2-3 for both ways");
    if (ranks[arrow] == '-') {
      if (result.type == fault::kind::clog) text.fail("a link is clogged one way: 2>3");
      result.type = fault::kind::cut_both;
    }
    result.peer = text.rank(ranks.substr(arrow + 1));
    ranks = ranks.substr(0, arrow);
  }
  result.rank = text.rank(ranks);
  if (result.rank == result.peer) text.fail("a link is between two ranks");
  if (result.type == fault::kind::wrong_argument) {
    const int argument = name_index(argument_names, text.next_token());
    if (argument < 0) text.fail("an argument is count, root, op, type, order or algorithm");
    result.wrong_argument = static_cast<fault::argument>(argument);
    return result;
  }
  result.event = text.event();
  if (result.type == fault::kind::clog || result.type == fault::kind::freeze) {
    result.duration = text.duration();
  }
  return result;
}

inline std::string duration_text(ticks length) {
  if (length % to_ticks(seconds) == 0) return std::to_string(length / to_ticks(seconds)) + "s";
  if (length % to_ticks(milliseconds) == 0) {
    return std::to_string(length / to_ticks(milliseconds)) + "ms";
  }
  return std::to_string(length / per_nanosecond) + "ns";
}

}  // namespace detail

/// Parses the text form of a plan. Throws std::invalid_argument with a message that quotes the
/// invalid statement.
inline fault_plan fault_plan::parse(std::string_view text) {
  fault_plan result;
  while (!text.empty()) {
    std::string_view line = detail::next_part(text, '\n');
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view part = detail::next_part(line, ';');
      detail::statement parser(part);
      if (parser.is_at_end()) continue;
      const std::string_view name = parser.next_token();
      if (name == "delay") {
        result.delay = parser.duration();
      } else if (name == "pieces") {
        result.pieces = true;
      } else if (name == "no_store") {
        result.store = false;
      } else if (name == "eager") {
        result.eager_limit = parser.number<std::size_t>(parser.next_token(), "bytes are a number");
      } else {
        result.faults.push_back(detail::parse_fault(parser, name));
      }
      parser.end();
    }
  }
  return result;
}

inline std::string fault_plan::text() const {
  std::string statements;
  const auto add = [&](const std::string& text) {
    statements += (statements.empty() ? "" : "; ") + text;
  };
  for (const fault& entry : faults) {
    std::string statement = detail::fault_names[static_cast<std::size_t>(entry.type)];
    statement += " " + std::to_string(entry.rank);
    if (entry.peer >= 0)
      statement += (entry.type == fault::kind::cut_both ? "-" : ">") + std::to_string(entry.peer);
    if (entry.type == fault::kind::wrong_argument) {
      statement += " ";
      statement += detail::argument_names[static_cast<std::size_t>(entry.wrong_argument)];
    } else {
      statement += " @" + std::to_string(entry.event);
    }
    if (entry.duration != 0) statement += " " + detail::duration_text(entry.duration);
    add(statement);
  }
  if (delay != 0) add("delay " + detail::duration_text(delay));
  if (pieces) add("pieces");
  if (!store) add("no_store");
  if (eager_limit != colls::eager_limit) add("eager " + std::to_string(eager_limit));
  return statements;
}

}  // namespace colls::simulated
