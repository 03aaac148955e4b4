// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The state of simulated ranks and of the connections between them. This state exists only in a run
// with a fault plan, which lists the faults to inject.

#include <colls/transport/simulated/event_queue.hpp>

#include <unordered_map>

namespace colls::simulated {

/// The state of a simulated rank. An `isolated` rank keeps running, but no message passes to or
/// from it. The process of a `killed` rank has ended. The machine of a `vanished` rank has
/// disappeared without closing its connections.
enum class rank_state : std::uint8_t { alive, isolated, killed, vanished };

/// The states of all ranks, and of all pairs of ranks that have communicated. This object exists
/// only in a run with a fault plan, because its size grows with the number of these pairs.
class connection_states {
 public:
  explicit connection_states(int ranks)
      : ranks_(static_cast<std::size_t>(ranks), rank_state::alive) {}

  /// One direction of the connection between two ranks.
  struct connection_state {
    bool open = false;  // the connection is established
    bool cut = false;
    bool failure_detected = false;  // the sender has detected the failure or soon will
    ticks stalled_until = 0;
    ticks last_arrival = 0;
    std::uint64_t messages = 0;
    // The communicator and the sequence number of the last collective of which a message or an
    // announcement has arrived.
    std::uint32_t communicator = 0;
    std::uint64_t sequence = 0;
  };
  connection_state& between(int source, int dest) {
    return states_[static_cast<std::uint64_t>(static_cast<std::uint32_t>(source)) << 32 |
                   static_cast<std::uint32_t>(dest)];
  }
  bool is_open(int rank, int peer) { return between(rank, peer).open; }

  rank_state& state_of(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  bool is_dead(int rank) { return state_of(rank) > rank_state::isolated; }
  bool is_unreachable(int rank) { return state_of(rank) != rank_state::alive; }

  enum class outcome : std::uint8_t {
    passes,
    dropped,      // the message is lost, and the sender already knows of the failure
    refused,      // the peer's machine answers, but the peer's process has ended
    unreachable,  // the sender gets no answer
  };
  /// Decides whether a message from `source` reaches `dest`. If it does, returns `passes` and opens
  /// the connection of the two ranks, unless the connection is open. If the message does not
  /// reach `dest`, returns what `source` learns, and records that `source` detects the failure.
  outcome try_send(int source, int dest) {
    connection_state& forward = between(source, dest);
    connection_state& backward = between(dest, source);
    const bool is_blocked = is_unreachable(source) || is_unreachable(dest) || forward.cut ||
                            (!forward.open && backward.cut);
    if (!is_blocked) {
      forward.open = backward.open = true;
      return outcome::passes;
    }
    if (forward.failure_detected) return outcome::dropped;
    forward.failure_detected = true;
    return state_of(dest) == rank_state::killed && !is_unreachable(source) ? outcome::refused
                                                                           : outcome::unreachable;
  }

  /// Records that `rank` detects the failure of its connection to `peer`, and returns true. Does
  /// nothing and returns false if the connection is not open or its failure was recorded before.
  bool detect_failure(int rank, int peer) {
    connection_state& state = between(rank, peer);
    if (!state.open || state.failure_detected) return false;
    state.failure_detected = true;
    return true;
  }

 private:
  std::vector<rank_state> ranks_;
  std::unordered_map<std::uint64_t, connection_state> states_;
};

}  // namespace colls::simulated
