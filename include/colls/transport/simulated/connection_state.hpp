// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// links: which pairs of simulated ranks have spoken, and what passes between them under a plan.

#include <colls/transport/simulated/event_queue.hpp>

#include <unordered_map>

namespace colls::simulated {

/// How a rank takes part.
enum class presence : std::uint8_t { alive, isolated, killed, vanished };

/// The state of pairs of ranks; kept only where a plan is, since it grows with the pairs that
/// speak.
class links {
 public:
  explicit links(int ranks) : ranks_(static_cast<std::size_t>(ranks), presence::alive) {}

  struct one_way {
    bool open = false;  // a connection stands
    bool cut = false;
    bool given_up = false;  // the sender knows, or will soon, that the peer cannot be reached
    ticks clogged_until = 0;
    ticks last_arrival = 0;
    std::uint64_t messages = 0;
    std::uint32_t communicator = 0;  // of the last collective that a message of it was of
    std::uint64_t sequence = 0;
  };
  one_way& between(int from, int to) {
    return ways_[static_cast<std::uint64_t>(static_cast<std::uint32_t>(from)) << 32 |
                 static_cast<std::uint32_t>(to)];
  }
  bool is_open(int one, int other) { return between(one, other).open; }

  presence& of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_dead(int rank) { return of(rank) > presence::isolated; }
  bool is_cut_off(int rank) { return of(rank) != presence::alive; }

  enum class outcome : std::uint8_t {
    passes,
    swallowed,    // the sender learns nothing, or knows already
    refused,      // nobody listens there
    unreachable,  // no answer
  };
  /// `from` sends something to `to`: whether it gets there, and what the sender will learn; the
  /// first message of two ranks opens their connection.
  outcome use(int from, int to) {
    one_way& there = between(from, to);
    one_way& back = between(to, from);
    const bool gone = is_cut_off(from) || is_cut_off(to) || there.cut || (!there.open && back.cut);
    if (!gone) {
      there.open = back.open = true;
      return outcome::passes;
    }
    if (there.given_up) return outcome::swallowed;
    there.given_up = true;
    return of(to) == presence::killed && !is_cut_off(from) ? outcome::refused
                                                           : outcome::unreachable;
  }

  /// True once for a connection of `rank` that has ended: it will find out.
  bool gives_up(int rank, int peer) {
    one_way& way = between(rank, peer);
    if (!way.open || way.given_up) return false;
    way.given_up = true;
    return true;
  }

 private:
  std::vector<presence> ranks_;
  std::unordered_map<std::uint64_t, one_way> ways_;
};

}  // namespace colls::simulated
