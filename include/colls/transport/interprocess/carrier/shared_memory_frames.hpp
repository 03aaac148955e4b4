// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring_frames: the frames of a link through shared memory: its outbox to the ring, and what lies
// there to the landing.

#include <colls/transport/interprocess/carrier/ring_buffer.hpp>
#include <colls/transport/interprocess/payload_target.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <algorithm>
#include <cstring>

namespace colls::tcp {

static_assert(longest_control <= shm::longest_piece, "a control frame is written whole");

/// Writes what there is room for. True: that was something.
inline bool write_frames(shm::ring& ring, outbox& from) {
  bool moved = false;
  while (!from.empty() && ring.has_slot()) {
    const outbox::piece next = from.front();
    const bool begins = next.frame.kind != kind{};
    std::size_t size = next.size;
    if (!begins || size > ring.inline_bytes()) {
      size = std::min(size, shm::longest_piece);
      if (ring.room(size) < size) break;
    }
    ring.write(next.frame, next.data, size);
    from.advance_front(size);
    moved = true;
  }
  return moved;
}

/// Takes payload that has come for the frame before.
inline void take_payload(shm::ring& ring, landing& into) {
  const std::size_t size = into.takes(ring.readable());
  if (size == 0) return;
  into.take(ring.data(), size);
  ring.take(size);
}

/// Takes the slot `next` off the ring; `begin(frame, payload)` is told if a frame begins there, and
/// gives false if the link has ended by it. Null, or what is wrong with the slot. A peer that
/// changes it meanwhile changes nothing, but for a payload that is data.
template <class Begin>
const char* take_slot(shm::ring& ring, const shm::slot& next, landing& into, Begin begin) {
  if (!ring.holds(next)) return damaged;
  const header frame = shm::fetched(next.frame);
  const std::size_t piece = shm::fetched(next.piece);
  if (frame.kind == kind{}) {
    if (into.left() == 0 || !ring.pop(piece)) return senseless;
    take_payload(ring, into);
    return ring.readable() <= into.left() ? nullptr : senseless;
  }
  if (into.left() > 0 || !plausible(frame)) return senseless;
  const std::size_t control = control_size(frame);
  const bool is_short = piece == 0 && frame.length <= ring.inline_bytes();
  if (piece > frame.length || (control > 0 && !is_short && piece != control)) return senseless;
  if (!ring.pop(piece)) return senseless;
  std::byte payload[longest_control];
  if (is_short) {
    shm::fetch(payload, next.data, sizeof next.data);
  } else if (control > 0) {
    shm::fetch(payload, ring.data(), control);
    ring.take(control);
  }
  const bool goes_on = begin(frame, payload);
  if (into.left() == 0 || !goes_on) return nullptr;
  if (is_short) {
    into.take(payload, into.left());
  } else {
    take_payload(ring, into);
  }
  return ring.readable() <= into.left() ? nullptr : senseless;
}

}  // namespace colls::tcp
