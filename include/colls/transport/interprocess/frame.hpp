// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// frame: the wire format of a connection. A frame is a header of 32 bytes, followed by the payload
// if there is one. If checksums are enabled, a frame on a socket carries its checksums between the
// header and the payload.
//
// Short messages are sent eagerly, that is, without waiting for their receives, as long as the
// sender has credit (a number of bytes that the receiver can buffer). The payload of any other
// message is sent only after the receiver has sent a CTS (clear to send). For a long message of a
// collective, the receiver sends the CTS when it posts the receive. In all other cases, the sender
// first sends an RTS (request to send), and the receiver answers it with the CTS.

#include <colls/base/error.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/key_table.hpp>
#include <colls/matching/state_report.hpp>
#include <colls/os/crc32c.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace colls::interprocess {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

/// The kind of a frame. The values are part of the wire format.
enum class kind : std::uint8_t {
  data = 1,     // an eager message, the payload that answers a CTS, or, with `flag::rts`, an RTS
  cts,          // permits one message of this key, or, with `flag::credit`, only returns credit;
                // `length` is the number of the RTS if the message is point to point
  announce,     // says that an operation of the sender has waited long; carries a state_report
  revoke,       // revokes the communicator; carries the failure
  goodbye,      // the last frame of a sender that leaves the world
  fingerprint,  // carries the fingerprint of the sender's call with this sequence number
  mapped,       // says that the sender has mapped the receiver's shared heap (memory for its peers)
  report,       // what the sender does and what it knows about late ranks; carries a state_report
  recovery,     // carries a part of a recovery message
};

/// The bits of `header::flags`. The values are part of the wire format.
namespace flag {
/// Marks a frame of `kind::data` as an RTS. An RTS carries no payload. The sender sends the payload
/// in another frame after it has received a CTS.
inline constexpr std::uint8_t rts = 1;
/// Marks an RTS as a repeated RTS. The receiver of a long message of a collective sends the CTS
/// without waiting for an RTS. If the CTS has not arrived after a while, the sender sends a
/// repeated RTS. The receiver can then detect that it expects a message of a different length, or
/// that it made a different call.
inline constexpr std::uint8_t repeat = 2;
/// Marks a frame of `kind::data` that carries the payload of a message for which the sender has
/// received a CTS.
inline constexpr std::uint8_t cleared = 4;
/// Marks a frame of `kind::cts` that returns `length` bytes of credit.
inline constexpr std::uint8_t credit = 8;
/// Marks a frame of `kind::cts` as a rejection: the buffer of the receive is too short for the
/// message that the RTS announced. The rank that receives this frame must not send the payload.
inline constexpr std::uint8_t truncated = 16;
/// Marks a frame of `kind::mapped` whose sender can also read private memory of the receiver. The
/// sender reads such memory through the kernel by CMA (cross-memory attach).
inline constexpr std::uint8_t cma = 32;
/// Marks an RTS as an RTS cancel, which withdraws a point-to-point message whose RTS was sent
/// earlier on this connection. Marks a frame of `kind::cts` as the confirmation of an RTS cancel. A
/// rank confirms an RTS cancel only if it has not answered the earlier RTS with a CTS. The
/// point-to-point RTS of a connection are numbered from 1. In both frames, the field `length` holds
/// the number of the earlier RTS instead of a length.
inline constexpr std::uint8_t cancel = 64;
/// Marks a frame of `kind::cts` as a rejection: the receiver has discarded the point-to-point
/// message that the RTS announced. The send of that message fails with `errc::cancelled`.
inline constexpr std::uint8_t discarded = 128;
/// Marks a frame of `kind::recovery` that carries the last part of its message.
inline constexpr std::uint8_t last = 1;
}  // namespace flag

struct header {
  interprocess::kind kind{};
  std::uint8_t flags = 0;
  std::uint16_t lane = 0;
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;
  std::uint64_t hash = 0;

  message_key key(int peer) const { return {peer, communicator, sequence, lane}; }
};
static_assert(sizeof(header) == 32 && std::is_trivially_copyable_v<header>);

/// A header and the two checksums that follow it. Every frame on a socket begins with a
/// `checked_header` if checksums are enabled. The receiver verifies `header_sum` before it uses any
/// other member.
struct checked_header : header {
  std::uint32_t payload_sum = 0;
  std::uint32_t header_sum = 0;  // the checksum of all members before this one

  using header::operator=;
  void set_checksums(const std::byte* payload, std::size_t size) {
    set_checksums(detail::crc32c(0, payload, size));
  }
  /// Sets the checksums of a frame whose payload has the checksum `of_payload`.
  void set_checksums(std::uint32_t of_payload) {
    payload_sum = of_payload;
    header_sum = sum();
  }
  bool is_intact() const { return header_sum == sum(); }

 private:
  std::uint32_t sum() const { return detail::crc32c(0, this, sizeof(header) + sizeof payload_sum); }
};
static_assert(sizeof(checked_header) == 40 && std::is_trivially_copyable_v<checked_header>);

/// The error text of a connection that has failed because a frame had a wrong checksum.
inline constexpr const char* bad_checksum = "a frame came with a wrong checksum";
/// The error text of a connection that has failed because a frame was malformed.
inline constexpr const char* malformed = "a frame that no rank of colls would send";

inline header make_header(interprocess::kind kind, const message_key& key, std::uint64_t length,
                          std::uint64_t hash, std::uint8_t flags = 0) {
  return {kind, flags, key.lane, key.communicator, key.sequence, length, hash};
}

/// The maximum payload size, in bytes, of a control frame. Every frame except those of `kind::data`
/// is a control frame.
inline constexpr std::size_t max_control_bytes = std::max(sizeof(failure), sizeof(state_report));

/// The maximum size of a message in bytes. No process can address more bytes.
inline constexpr std::uint64_t max_message_bytes = std::uint64_t{1} << 57;

/// The largest tag of a point-to-point message.
inline constexpr std::uint64_t max_tag = INT32_MAX;

/// Returns whether a rank of colls could have sent this header. The receiver of a frame calls this
/// function before it relies on the length in the header to read the payload or to allocate memory.
inline bool is_plausible(const header& frame) {
  switch (frame.kind) {
    case kind::data:
    case kind::cts: {
      const bool is_p2p = frame.lane == message_key::point_to_point;
      const bool is_discarded = frame.kind == kind::cts && (frame.flags & flag::discarded) != 0;
      return frame.length <= max_message_bytes &&
             (is_p2p ? frame.sequence <= max_tag : !is_discarded);
    }
    case kind::announce:
    case kind::report:
      return frame.length == sizeof(state_report);
    case kind::revoke:
      return frame.length == sizeof(failure);
    case kind::recovery:
      return frame.length > 0 && frame.length <= max_control_bytes;
    case kind::goodbye:
    case kind::mapped:
      return frame.length == 0;
    case kind::fingerprint:
      return frame.length == sizeof(fingerprint);
  }
  return false;
}

/// Returns the payload size, in bytes, of a control frame. Returns 0 for `kind::cts`, because such
/// a frame has no payload, and for `kind::data`, because such a frame is not a control frame.
inline std::size_t control_size(const header& frame) {
  const bool has_none = frame.kind == kind::data || frame.kind == kind::cts;
  return has_none ? 0 : frame.length;
}

}  // namespace colls::interprocess
