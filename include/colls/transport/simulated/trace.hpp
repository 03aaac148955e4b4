// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The trace of a simulated run: a record of each message, for diagrams and for comparing runs.

#include <colls/transport/simulated/event_queue.hpp>

namespace colls::simulated {

/// The record of one message. The time of an event that has not happened is `no_time`.
struct message_trace {
  int source = -1;
  int dest = -1;
  std::uint64_t sequence = 0;
  std::uint16_t lane = 0;
  std::uint32_t round = 0;  // the length of the longest chain of messages that ends with this one
  std::size_t size = 0;
  const std::byte* data = nullptr;  // the address of the bytes at the sender
  bool folded = false;              // the receiver has reduced the message instead of copying it
  ticks started = no_time;
  ticks left = no_time;      // when the sender's port was free again
  ticks arrived = no_time;   // when the last byte arrived
  ticks received = no_time;  // when the message was delivered to a receive
};

}  // namespace colls::simulated
