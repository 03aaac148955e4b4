// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The fingerprint of a call: everything that must be equal on all ranks, and its hash.

#include <colls/error.hpp>
#include <colls/op.hpp>

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
inline void describe(line& to, const fingerprint& call) {
  to.add("%s", colls::name(call.what));
  if (call.type != 0 || call.count != 0) {
    to.add(" of %llu x %s", static_cast<unsigned long long>(call.count), type_name(call.type));
    if (type_name(call.type)[0] == 'u' && type_name(call.type)[1] == 's') {
      to.add(" (%u bytes)", call.element_size);
    }
  }
  if (call.op != 0) to.add(", %s", op_name(call.op));
  if (call.accumulate != 0 && call.accumulate != call.type) {
    to.add(" in %s", type_name(call.accumulate));
  }
  if (call.root >= 0) to.add(", root %d", call.root);
  if (call.how != algorithm::automatic) to.add(", %s", colls::name(call.how));
}

/// The sentence of a mismatch: both sides by name, and in what they differ.
inline void say_difference(failure& why, int rank, const fingerprint& one, int other_rank,
                           const fingerprint& other) {
  line first;
  line second;
  line differ;
  describe(first, one);
  describe(second, other);
  const auto add = [&](bool differs, const char* what) {
    if (differs) differ.add("%s%s", differ.text()[0] == 0 ? "" : ", ", what);
  };
  if (one.what != other.what) {
    why.say("rank %d called %.100s, rank %d called %.100s; they differ in collective", rank,
            first.text(), other_rank, second.text());
    return;
  }
  add(one.count != other.count || one.shape != other.shape, "count");
  add(one.type != other.type || one.element_size != other.element_size, "type");
  add(one.op != other.op, "op");
  add(one.root != other.root, "root");
  add(one.how != other.how, "algorithm");
  add(one.accumulate != other.accumulate || one.wire != other.wire, "accumulate type");
  add(one.segment != other.segment || one.lanes != other.lanes, "segment");
  add(one.radix != other.radix, "radix");
  add(one.sum != other.sum, "order");
  why.say("rank %d called %.100s, rank %d called %.100s; they differ in %.60s", rank, first.text(),
          other_rank, second.text(), differ.text());
}

/// The same where `rank` has gone on so far that it does not remember its side.
inline void say_forgotten(failure& why, int rank, int other_rank, const fingerprint& other) {
  line known;
  describe(known, other);
  why.say("rank %d called %.100s, rank %d called something else, many calls ago", other_rank,
          known.text(), rank);
}

}  // namespace detail

}  // namespace colls
