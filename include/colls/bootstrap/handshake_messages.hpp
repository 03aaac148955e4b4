// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The messages of the handshake. HELLO is the first message on every connection, in both
// directions. The verdict is the last message of the handshake and says whether the accepting side
// accepts the peer. Both messages have a fixed size.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

namespace colls {

/// The version of the wire format. Processes with different versions refuse to connect.
inline constexpr std::uint16_t wire_version = 8;

/// The purpose of a connection. Connections between ranks and connections to the store (the
/// key-value service through which ranks find each other) can share a port. The values after
/// `store` occur only in answers and say why the accepting side refuses the connection.
enum class connection_purpose : std::uint8_t {
  peer = 1,
  store,
  wrong_job,         // the accepting side belongs to another job or has another wire version
  no_descriptor,     // the accepting side has reached its limit on open files
  other_generation,  // the accepting side belongs to another generation of this job
};

/// Returns whether `purpose` is a reason for which the accepting side refuses a connection.
constexpr bool is_refusal(connection_purpose purpose) {
  return purpose >= connection_purpose::wrong_job &&
         purpose <= connection_purpose::other_generation;
}

/// The first message on every connection, in both directions.
struct hello {
  connection_purpose purpose = connection_purpose::peer;
  bool has_secret = false;  // whether there is a secret that was not made by secret::drawn
  bool checksum = false;    // whether frames after the handshake have checksums
  std::uint16_t version = wire_version;
  std::uint32_t generation = 0;  // how often the world has taken in replacements of lost ranks
  std::uint64_t job = 0;
  std::int32_t rank = -1;  // the rank in the world, or -1 for a launcher
  std::int32_t world = 0;
  std::array<std::byte, 32> nonce{};
};

using hello_bytes = std::array<std::byte, 64>;
using proof_bytes = std::array<std::byte, 32>;
using verdict_bytes = std::array<std::byte, 16>;

/// The answer of the accepting side to a peer that has proved that it knows the secret.
enum class verdict : std::uint8_t {
  accepted = 1,
  duplicate,          // the peer already has a connection to this rank and should use it
  rank_taken,         // another living process has the rank of the peer
  world_complete,     // a process with the rank of the peer has already left the world
  other_world,        // the two sides disagree about the size of the world
  unavailable,        // the accepting process is closing, or does not expect this peer
  connection_failed,  // an earlier connection to the peer and the operations on it have failed
  excluded,           // the ranks have agreed to go on without the peer
};

namespace detail {

template <class Number>
void put_number(std::byte* target, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    target[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}
template <class Number>
Number get_number(const std::byte* source) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    value |= std::to_integer<std::uint64_t>(source[i]) << (8 * i);
  }
  return static_cast<Number>(value);
}

// The first bytes of every HELLO. Like the PNG signature, they contain line endings. A transfer in
// text mode would change the line endings, and the receiver would then reject the HELLO.
inline constexpr unsigned char hello_magic[8] = {0x89, 'C', 'O', 'L', '\r', '\n', 0x1a, '\n'};

// The number format of this machine (byte order and floating-point format). Both sides of a
// connection must have the same number format, because neither side converts payloads.
inline constexpr std::uint8_t machine_format =
    (std::endian::native == std::endian::little ? 1 : 0) |
    (std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559 ? 2 : 0);

}  // namespace detail

/// Returns the HELLO that refuses a peer for the given reason. `rank` is the rank of this process,
/// or -1 if this process is not a rank or does not disclose its rank. The HELLO contains nothing
/// else about this process or its job.
inline hello refusal(connection_purpose reason, std::int32_t rank = -1) {
  hello answer;
  answer.purpose = reason;
  answer.rank = rank;
  answer.world = rank + 2;
  return answer;
}

inline hello_bytes write_hello(const hello& message) {
  hello_bytes bytes{};
  std::memcpy(bytes.data(), detail::hello_magic, sizeof detail::hello_magic);
  detail::put_number(&bytes[8], message.version);
  detail::put_number(&bytes[10], static_cast<std::uint8_t>(message.purpose));
  detail::put_number(&bytes[11], static_cast<std::uint8_t>(detail::machine_format |
                                                           (message.has_secret ? 0x80 : 0) |
                                                           (message.checksum ? 0x40 : 0)));
  detail::put_number(&bytes[12], message.generation);
  detail::put_number(&bytes[16], message.job);
  detail::put_number(&bytes[24], message.rank);
  detail::put_number(&bytes[28], message.world);
  std::memcpy(&bytes[32], message.nonce.data(), message.nonce.size());
  return bytes;
}

/// Parses a HELLO. Returns nullopt if the bytes are not a valid HELLO. If the peer has a different
/// wire version, only `version` is set in the result. If the peer has a different number format,
/// `version` is 0 and no other member is set.
inline std::optional<hello> parse_hello(std::span<const std::byte> bytes) {
  if (bytes.size() != std::tuple_size_v<hello_bytes> ||
      std::memcmp(bytes.data(), detail::hello_magic, sizeof detail::hello_magic) != 0) {
    return std::nullopt;
  }
  hello result;
  result.version = detail::get_number<std::uint16_t>(&bytes[8]);
  const auto flags = std::to_integer<std::uint8_t>(bytes[11]);
  if (result.version != wire_version) return result;
  if ((flags & 0x3f) != detail::machine_format) {
    result.version = 0;
    return result;
  }
  result.purpose = static_cast<connection_purpose>(bytes[10]);
  result.has_secret = (flags & 0x80) != 0;
  result.checksum = (flags & 0x40) != 0;
  result.generation = detail::get_number<std::uint32_t>(&bytes[12]);
  result.job = detail::get_number<std::uint64_t>(&bytes[16]);
  result.rank = detail::get_number<std::int32_t>(&bytes[24]);
  result.world = detail::get_number<std::int32_t>(&bytes[28]);
  std::memcpy(result.nonce.data(), &bytes[32], result.nonce.size());
  const bool sane = result.purpose >= connection_purpose::peer &&
                    result.purpose <= connection_purpose::other_generation && result.world >= 1 &&
                    result.rank >= -1 && result.rank < result.world &&
                    (result.purpose != connection_purpose::peer || result.rank >= 0);
  return sane ? std::optional(result) : std::nullopt;
}

}  // namespace colls
