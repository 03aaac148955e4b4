// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_memory_frames: functions that write the queued frames of a connection to a ring buffer in
// shared memory, and that read arriving frames from it. An arriving payload goes to the
// `payload_target`, which knows the destination of the payload.

#include <colls/transport/interprocess/carrier/ring_buffer.hpp>
#include <colls/transport/interprocess/payload_target.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <algorithm>
#include <cstring>

namespace colls::interprocess {

static_assert(max_control_bytes <= shm::max_piece_bytes, "a control frame is one piece");

/// Writes as many queued frames as the ring buffer has room for. Returns whether anything was
/// written.
inline bool write_frames(shm::ring_buffer& ring, send_queue& queue) {
  bool moved = false;
  while (!queue.empty() && ring.has_slot()) {
    const send_queue::piece next = queue.front();
    const bool begins = next.frame.kind != kind{};
    std::size_t size = next.size;
    if (!begins || size > ring.inline_bytes()) {
      size = std::min(size, shm::max_piece_bytes);
      if (ring.room(size) < size) break;
    }
    ring.write(next.frame, next.data, size);
    queue.advance_front(size);
    moved = true;
  }
  return moved;
}

/// Passes as many of the arrived payload bytes to `target` as `target` accepts, and releases these
/// bytes in the ring.
inline void take_payload(shm::ring_buffer& ring, payload_target& target) {
  const std::size_t size = target.acceptable(ring.readable());
  if (size == 0) return;
  target.take(ring.data(), size);
  ring.take(size);
}

/// Removes `next`, which must be the front slot, from `ring`. If a frame begins in the slot, calls
/// `begin(frame, payload)`, which must return false if it has ended the connection. Then passes the
/// arrived payload bytes of a data frame to `target`. Returns null, or a text that says what is
/// wrong with the slot. The peer can change the slot during the call. The function therefore copies
/// each header and the payload of each control frame, and then uses only the copies. A change can
/// affect only the payload of a data frame.
template <class Begin>
const char* take_slot(shm::ring_buffer& ring, const shm::slot& next, payload_target& target,
                      Begin begin) {
  if (!ring.is_intact(next)) return bad_checksum;
  const header frame = shm::load_once(next.frame);
  const std::size_t piece = shm::load_once(next.piece);
  if (frame.kind == kind{}) {
    if (target.left() == 0 || !ring.pop(piece)) return malformed;
    take_payload(ring, target);
    return ring.readable() <= target.left() ? nullptr : malformed;
  }
  if (target.left() > 0 || !is_plausible(frame)) return malformed;
  const std::size_t control = control_size(frame);
  const bool is_short = piece == 0 && frame.length <= ring.inline_bytes();
  if (piece > frame.length || (control > 0 && !is_short && piece != control)) return malformed;
  if (!ring.pop(piece)) return malformed;
  std::byte payload[max_control_bytes];
  if (is_short) {
    shm::copy_once(payload, next.data, sizeof next.data);
  } else if (control > 0) {
    shm::copy_once(payload, ring.data(), control);
    ring.take(control);
  }
  const bool is_running = begin(frame, payload);
  if (target.left() == 0 || !is_running) return nullptr;
  if (is_short) {
    target.take(payload, target.left());
  } else {
    take_payload(ring, target);
  }
  return ring.readable() <= target.left() ? nullptr : malformed;
}

}  // namespace colls::interprocess
