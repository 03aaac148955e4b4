// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The fingerprint of a call: everything that must be equal on all ranks, and its hash.

#include <colls/base/error.hpp>
#include <colls/base/op.hpp>

#include <cstring>

namespace colls {

/// What all ranks must agree on. It travels as it is when two ranks differ, else only its hash.
struct fingerprint {
  collective what = collective::none;
  algorithm how = algorithm::automatic;
  order sum = order::any;
  colls::wire wire = colls::wire::accumulate;
  std::int32_t root = -1;
  std::uint32_t type = 0;
  std::uint32_t element_size = 0;
  std::uint32_t accumulate = 0;
  std::uint32_t op = 0;
  std::uint32_t lanes = 1;
  std::uint32_t radix = 0;
  std::uint64_t count = 0;
  std::uint64_t shape = 0;  // hash of all counts (v-calls) or of all parts' sizes (grouped)
  std::uint64_t segment = 0;

  [[gnu::always_inline]] friend bool operator==(const fingerprint&, const fingerprint&) = default;
};
static_assert(sizeof(fingerprint) == 56 && std::is_trivially_copyable_v<fingerprint>);

/// Mixes one more word into a hash (the finaliser of MurmurHash3).
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) + 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

/// Never 0, which stands for "no fingerprint" on the wire.
inline std::uint64_t hash_of(const fingerprint& call) {
  std::uint64_t hash = 0;
  // One multiplication a word, whose high half is folded back, and a good mix at the end.
  const auto add = [&](std::uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  };
  // Member by member: words read from memory would wait for the members that were just stored.
  const auto both = [](std::uint32_t high, std::uint32_t low) {
    return std::uint64_t{high} << 32 | low;
  };
  const auto kinds = [](auto... kind) {
    std::uint32_t all = 0;
    ((all = all << 8 | static_cast<std::uint8_t>(kind)), ...);
    return all;
  };
  add(both(kinds(call.what, call.how, call.sum, call.wire), static_cast<std::uint32_t>(call.root)));
  add(both(call.type, call.element_size));
  add(both(call.accumulate, call.op));
  add(both(call.lanes, call.radix));
  add(call.count);
  add(call.shape);
  add(call.segment);
  return mix(hash, sizeof call) | 1;
}

namespace detail {

/// "all_reduce of 10 x float, plus, ring" for messages.
void describe(line& to, const fingerprint& call);

/// The sentence of a mismatch: both sides by name, and in what they differ.
void say_difference(failure& why, int rank, const fingerprint& one, int other_rank,
                    const fingerprint& other);

/// The same where `rank` has gone on so far that it does not remember its side.
void say_forgotten(failure& why, int rank, int other_rank, const fingerprint& other);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/base/fingerprint.ipp>
#endif
