// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The trace of a simulated run: a record of each message, for diagrams and for comparing runs.

#include <colls/transport/simulated/event_queue.hpp>

namespace colls::simulated {

/// One message. A time that was never reached is `no_time`.
struct message_trace {
  int source = -1;
  int dest = -1;
  std::uint64_t sequence = 0;
  std::uint16_t lane = 0;
  std::uint32_t round = 0;  // its position in the longest chain that leads to it, from 1 on
  std::size_t size = 0;
  const std::byte* data = nullptr;  // its address at the sender
  bool folded = false;              // the receiver reduced it into a buffer instead of copying it
  ticks started = no_time;
  ticks left = no_time;      // the sender's port was free again
  ticks arrived = no_time;   // the last byte arrived
  ticks received = no_time;  // it was delivered to a receive
};

}  // namespace colls::simulated
