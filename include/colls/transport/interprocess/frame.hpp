// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The frames of a link: 32 bytes of header, then the payload of those that have one. Where ranks
// agreed on checksums, those of a frame on a socket follow its header.

#include <colls/base/error.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/key_table.hpp>
#include <colls/matching/stragglers.hpp>
#include <colls/os/crc32c.hpp>

#include <algorithm>
#include <bit>
#include <cstring>

namespace colls::tcp {

static_assert(std::endian::native == std::endian::little, "frames are little-endian");

enum class kind : std::uint8_t {
  data = 1,     // a message; `header_alone`: its payload waits for a grant
  grant,        // a receive is posted: one message of this key may come; `window`: bytes given back
  announce,     // I have waited long in this operation; payload: what I know of late ranks
  revoke,       // payload: a failure
  goodbye,      // I leave; nothing follows
  fingerprint,  // payload: what I called under this number
  mapped,       // I see the memory that you have passed
  report,       // where I am, and what I know of late ranks
};

namespace flag {
inline constexpr std::uint8_t header_alone = 1;  // data: announces a message
inline constexpr std::uint8_t reminder = 2;      // with header_alone: asks for no grant
inline constexpr std::uint8_t granted = 4;       // data: answers a grant
inline constexpr std::uint8_t window = 8;        // grant: gives back unsolicited bytes
inline constexpr std::uint8_t unwanted = 16;     // grant: the receive was too short, do not send
inline constexpr std::uint8_t reads = 32;        // mapped: I read your own memory, too
// data: the message that was announced as the `length`th of point to point will not come; grant: of
// that one, that nobody has asked for it
inline constexpr std::uint8_t taken_back = 64;
}  // namespace flag

struct header {
  tcp::kind kind{};
  std::uint8_t flags = 0;
  std::uint16_t lane = 0;
  std::uint32_t communicator = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;
  std::uint64_t hash = 0;

  message_key key(int peer) const { return {peer, communicator, sequence, lane}; }
};
static_assert(sizeof(header) == 32 && std::is_trivially_copyable_v<header>);

/// A header and the checksums that follow it on a socket where ranks agreed on them. That of the
/// header is compared before anything in it is believed.
struct checked_header : header {
  std::uint32_t payload_sum = 0;
  std::uint32_t header_sum = 0;  // of all before it

  using header::operator=;
  void seal(const std::byte* payload, std::size_t size) {
    payload_sum = detail::crc32c(0, payload, size);
    header_sum = sum();
  }
  bool holds() const { return header_sum == sum(); }

 private:
  std::uint32_t sum() const { return detail::crc32c(0, this, sizeof(header) + sizeof payload_sum); }
};
static_assert(sizeof(checked_header) == 40 && std::is_trivially_copyable_v<checked_header>);

/// What a link's failure says of a frame whose bytes are not those that its sender wrote.
inline constexpr const char* damaged = "a frame came with a wrong checksum";
/// And of one whose bytes make no sense.
inline constexpr const char* senseless = "a frame that no rank of colls would send";

inline header header_for(tcp::kind what, const message_key& key, std::uint64_t length,
                         std::uint64_t hash, std::uint8_t flags = 0) {
  return {what, flags, key.lane, key.communicator, key.sequence, length, hash};
}

/// Longest payload of a frame that is not data.
inline constexpr std::size_t longest_control = std::max(sizeof(failure), sizeof(state_report));

/// No message is longer, since no process addresses so much.
inline constexpr std::uint64_t longest_message = std::uint64_t{1} << 57;

/// Whether a header can be right at all; lengths are judged before anything is read or allocated.
inline bool plausible(const header& frame) {
  switch (frame.kind) {
    case kind::data:
    case kind::grant:
      return frame.length <= longest_message;
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

/// The bytes of payload of a frame that is not data.
inline std::size_t control_size(const header& frame) {
  const bool has_none = frame.kind == kind::data || frame.kind == kind::grant;
  return has_none ? 0 : frame.length;
}

}  // namespace colls::tcp
