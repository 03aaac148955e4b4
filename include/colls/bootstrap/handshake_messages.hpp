// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// HELLO, the first message on every connection: fixed in size, parsed by pure functions.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>

namespace colls {

/// Ranks work together only if this number is equal: it counts changes of what travels.
inline constexpr std::uint16_t wire_version = 5;

/// What a connection is for, so that links and the store can share a port; or, as an answer, why it
/// is none.
enum class purpose : std::uint8_t {
  link = 1,
  store,
  wrong_job,      // the accepting side belongs to another job, or speaks another wire version
  no_descriptor,  // it has too many open files for one more connection
};

/// Whether that is an answer alone.
constexpr bool is_refusal(purpose what) {
  return what == purpose::wrong_job || what == purpose::no_descriptor;
}

/// The first message on every connection, either way.
struct hello {
  purpose what = purpose::link;
  bool has_secret = false;  // one that a user gave
  bool checksum = false;    // frames after the handshake have checksums
  std::uint16_t version = wire_version;
  std::uint32_t link_set = 0;  // which of a rank's sets of links (dup makes further ones)
  std::uint64_t job = 0;
  std::int32_t rank = -1;  // in the world; -1: a launcher
  std::int32_t world = 0;
  std::array<std::byte, 32> nonce{};
};

using hello_bytes = std::array<std::byte, 64>;
using proof_bytes = std::array<std::byte, 32>;
using verdict_bytes = std::array<std::byte, 16>;

/// What the accepting side answers to a peer that has proved itself.
enum class verdict : std::uint8_t {
  accepted = 1,
  duplicate,       // a link to that rank exists: use it
  rank_taken,      // a living process has that rank
  world_complete,  // the world had that rank, and it is gone
  other_world,     // the sizes of the worlds differ
  not_now,         // leaving, or not the one you think
  given_up,        // the link to that rank has broken here, and every operation with it ended
};

namespace detail {

template <class Number>
void put_number(std::byte* into, Number value) {
  for (std::size_t i = 0; i < sizeof value; ++i) {
    into[i] = static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * i));
  }
}
template <class Number>
Number get_number(const std::byte* from) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(Number); ++i) {
    value |= std::to_integer<std::uint64_t>(from[i]) << (8 * i);
  }
  return static_cast<Number>(value);
}

// As PNG's: a text-mode transfer would mangle it.
inline constexpr unsigned char hello_magic[8] = {0x89, 'C', 'O', 'L', '\r', '\n', 0x1a, '\n'};

// Payloads travel in the machine's own format, so both ends must have the same.
inline constexpr std::uint8_t machine_format =
    (std::endian::native == std::endian::little ? 1 : 0) |
    (std::numeric_limits<float>::is_iec559 && std::numeric_limits<double>::is_iec559 ? 2 : 0);

}  // namespace detail

/// The HELLO that turns a peer away: it says nothing of this job.
inline hello refusal(purpose why, std::int32_t rank = -1) {
  hello answer;
  answer.what = why;
  answer.rank = rank;
  answer.world = rank + 2;
  return answer;
}

inline hello_bytes write_hello(const hello& from) {
  hello_bytes into{};
  std::memcpy(into.data(), detail::hello_magic, sizeof detail::hello_magic);
  detail::put_number(&into[8], from.version);
  detail::put_number(&into[10], static_cast<std::uint8_t>(from.what));
  detail::put_number(
      &into[11], static_cast<std::uint8_t>(detail::machine_format | (from.has_secret ? 0x80 : 0) |
                                           (from.checksum ? 0x40 : 0)));
  detail::put_number(&into[12], from.link_set);
  detail::put_number(&into[16], from.job);
  detail::put_number(&into[24], from.rank);
  detail::put_number(&into[28], from.world);
  std::memcpy(&into[32], from.nonce.data(), from.nonce.size());
  return into;
}

/// Nothing unless the bytes are a HELLO. Of another version's (or another machine format's, which
/// gives version 0) nothing but `version` may be believed.
inline std::optional<hello> parse_hello(std::span<const std::byte> from) {
  if (from.size() != std::tuple_size_v<hello_bytes> ||
      std::memcmp(from.data(), detail::hello_magic, sizeof detail::hello_magic) != 0) {
    return std::nullopt;
  }
  hello to;
  to.version = detail::get_number<std::uint16_t>(&from[8]);
  const auto flags = std::to_integer<std::uint8_t>(from[11]);
  if (to.version != wire_version) return to;
  if ((flags & 0x3f) != detail::machine_format) {
    to.version = 0;
    return to;
  }
  to.what = static_cast<purpose>(from[10]);
  to.has_secret = (flags & 0x80) != 0;
  to.checksum = (flags & 0x40) != 0;
  to.link_set = detail::get_number<std::uint32_t>(&from[12]);
  to.job = detail::get_number<std::uint64_t>(&from[16]);
  to.rank = detail::get_number<std::int32_t>(&from[24]);
  to.world = detail::get_number<std::int32_t>(&from[28]);
  std::memcpy(to.nonce.data(), &from[32], to.nonce.size());
  const bool sane = to.what >= purpose::link && to.what <= purpose::no_descriptor &&
                    to.world >= 1 && to.rank >= -1 && to.rank < to.world &&
                    (to.what != purpose::link || to.rank >= 0);
  return sane ? std::optional(to) : std::nullopt;
}

}  // namespace colls
