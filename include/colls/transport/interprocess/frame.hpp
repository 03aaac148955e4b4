// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The frames of a connection: a header of 32 bytes, then the payload, if there is one. With
// checksums enabled, a frame on a socket carries its checksums right behind the header.

#include <colls/base/error.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/key_table.hpp>
#include <colls/matching/stragglers.hpp>
#include <colls/os/crc32c.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace colls::interprocess {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

/// What a frame is. Values are part of the wire format.
enum class kind : std::uint8_t {
  data = 1,     // an eager message, the payload that answers a CTS, or, with `flag::rts`, an RTS
  cts,          // clear to send: one message of this key may come; with `flag::credit`, only credit
  announce,     // the sender has waited long in this operation; payload: state_report
  revoke,       // payload: failure
  goodbye,      // the sender leaves; nothing follows
  fingerprint,  // payload: the fingerprint of the sender's call of this sequence
  mapped,       // the sender has mapped the shared heap that it was passed
  report,       // the sender's state and what it knows of late ranks; payload: state_report
};

/// Bits of `header::flags`. Values are part of the wire format.
namespace flag {
inline constexpr std::uint8_t rts = 1;         // data: request to send; the payload waits for a CTS
inline constexpr std::uint8_t repeat = 2;      // with rts: repeated RTS, which asks for no CTS
inline constexpr std::uint8_t cleared = 4;     // data: this payload answers a CTS
inline constexpr std::uint8_t credit = 8;      // cts: returns `length` bytes of credit
inline constexpr std::uint8_t truncated = 16;  // cts: the receive is too short, do not send
inline constexpr std::uint8_t cma = 32;        // mapped: the sender reads private memory, too
// With rts: RTS cancel; the point-to-point message whose RTS was the `length`th of this connection
// will not come. With cts: confirms the cancel of an RTS that no receive had answered.
inline constexpr std::uint8_t cancel = 64;
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

/// A header and the checksums that follow it on a socket, if checksums are enabled. The header's
/// checksum is compared before any field is used.
struct checked_header : header {
  std::uint32_t payload_sum = 0;
  std::uint32_t header_sum = 0;  // of all members before it

  using header::operator=;
  void set_checksums(const std::byte* payload, std::size_t size) {
    payload_sum = detail::crc32c(0, payload, size);
    header_sum = sum();
  }
  bool is_intact() const { return header_sum == sum(); }

 private:
  std::uint32_t sum() const { return detail::crc32c(0, this, sizeof(header) + sizeof payload_sum); }
};
static_assert(sizeof(checked_header) == 40 && std::is_trivially_copyable_v<checked_header>);

/// Reason of a connection's failure: a frame arrived damaged.
inline constexpr const char* bad_checksum = "a frame came with a wrong checksum";
/// Reason of a connection's failure: a frame is malformed.
inline constexpr const char* malformed = "a frame that no rank of colls would send";

inline header make_header(interprocess::kind kind, const message_key& key, std::uint64_t length,
                          std::uint64_t hash, std::uint8_t flags = 0) {
  return {kind, flags, key.lane, key.communicator, key.sequence, length, hash};
}

/// Longest payload of a control frame, which is any frame but `kind::data`.
inline constexpr std::size_t max_control_bytes = std::max(sizeof(failure), sizeof(state_report));

/// Longest message: no process can address more bytes.
inline constexpr std::uint64_t max_message_bytes = std::uint64_t{1} << 57;

/// Whether a header is possible at all. Lengths are checked before anything is read or allocated.
inline bool is_plausible(const header& frame) {
  switch (frame.kind) {
    case kind::data:
    case kind::cts:
      return frame.length <= max_message_bytes;
    case kind::announce:
    case kind::report:
      return frame.length == sizeof(state_report);
    case kind::revoke:
      return frame.length == sizeof(failure);
    case kind::goodbye:
    case kind::mapped:
      return frame.length == 0;
    case kind::fingerprint:
      return frame.length == sizeof(fingerprint);
  }
  return false;
}

/// The payload length of a control frame; 0 for `kind::data`.
inline std::size_t control_size(const header& frame) {
  const bool has_none = frame.kind == kind::data || frame.kind == kind::cts;
  return has_none ? 0 : frame.length;
}

}  // namespace colls::interprocess
