// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// trace: what a simulated run remembers of each message, for pictures and for comparing runs.

#include <colls/transport/simulated/event_queue.hpp>

namespace colls::simulated {

/// One message, as the world saw it. Times that never came are `no_time`.
struct message_trace {
  int from = -1;
  int to = -1;
  std::uint64_t sequence = 0;
  std::uint16_t lane = 0;
  std::uint32_t round = 0;  // its place in the longest chain that leads to it, from 1 on
  std::size_t size = 0;
  const std::byte* data = nullptr;  // where it lay at the sender
  bool folded = false;              // reduced into what the receiver had, not copied
  ticks started = no_time;
  ticks left = no_time;      // the sender's way out was free again
  ticks arrived = no_time;   // its last byte
  ticks received = no_time;  // by a receive
};

}  // namespace colls::simulated
