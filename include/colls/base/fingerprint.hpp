// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// fingerprint: the arguments of a call that must be equal on all ranks, and their hash.

#include <colls/base/error.hpp>
#include <colls/base/op.hpp>

#include <cstring>

namespace colls {

/// The arguments of a call on which all ranks must agree. Messages carry the hash of the sender's
/// fingerprint. Ranks send the fingerprint itself only if two hashes differ.
struct fingerprint {
  collective operation = collective::none;
  colls::algorithm algorithm = colls::algorithm::automatic;
  colls::order order = colls::order::any;
  colls::wire wire = colls::wire::accumulate;
  std::int32_t root = -1;
  std::uint32_t type = 0;
  std::uint32_t element_size = 0;
  std::uint32_t accumulate = 0;
  std::uint32_t op = 0;
  std::uint32_t lanes = 1;
  std::uint32_t radix = 0;
  std::uint64_t count = 0;
  // A hash of the counts (v-collectives) or buffer sizes (groups). If the algorithm is the user's
  // own, the upper half is a hash of its name instead.
  std::uint64_t shape = 0;
  std::uint64_t segment = 0;

  [[gnu::always_inline]] friend bool operator==(const fingerprint&, const fingerprint&) = default;
};
static_assert(sizeof(fingerprint) == 56 && std::is_trivially_copyable_v<fingerprint>);

/// Mixes `number` into `hash` and returns the new hash. The mixing function is the one of
/// SplitMix64, a variant of the finaliser of MurmurHash3.
constexpr std::uint64_t mix(std::uint64_t hash, std::uint64_t number) {
  hash = (hash ^ number) + 0x9e3779b97f4a7c15ULL;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111ebULL;
  return hash ^ (hash >> 31);
}

/// Returns `shape` with a hash of `name` in its upper half. `name` is that of an algorithm of the
/// user's own.
constexpr std::uint64_t with_name(std::uint64_t shape, const char* name) {
  std::uint64_t hash = 0;
  for (; *name != 0; ++name) hash = mix(hash, static_cast<unsigned char>(*name));
  return (hash >> 32 << 32) | ((shape ^ (shape >> 32)) & 0xffff'ffff);
}

/// Returns the hash of a fingerprint. The hash is never 0, because 0 in a message means that the
/// message has no fingerprint.
inline std::uint64_t hash_of(const fingerprint& call) {
  std::uint64_t hash = 0;
  // `add` is cheap: it multiplies the hash once per 8 bytes and combines the high half of the
  // product with the low half. This mixes the bits less well than `mix`, so `hash_of` calls `mix`
  // once at the end.
  const auto add = [&](std::uint64_t number) {
    hash = (hash ^ number) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  };
  // `both` combines two 4-byte members, each of which is loaded separately. One 8-byte load of both
  // members would stall if each of them had just been stored by its own instruction.
  const auto both = [](std::uint32_t high, std::uint32_t low) {
    return std::uint64_t{high} << 32 | low;
  };
  const auto kinds = [](auto... kind) {
    std::uint32_t all = 0;
    ((all = all << 8 | static_cast<std::uint8_t>(kind)), ...);
    return all;
  };
  add(both(kinds(call.operation, call.algorithm, call.order, call.wire),
           static_cast<std::uint32_t>(call.root)));
  add(both(call.type, call.element_size));
  add(both(call.accumulate, call.op));
  add(both(call.lanes, call.radix));
  add(call.count);
  add(call.shape);
  add(call.segment);
  return mix(hash, sizeof call) | 1;
}

namespace detail {

/// Remembers the name of an algorithm of the user's own, so that error messages can contain it.
/// `name` must stay valid.
void remember_custom_algorithm(const char* name);

/// Remembers the name of a type of objects, so that error messages can contain it. `type` is the
/// number of the type in fingerprints. `name` must stay valid.
void remember_object_type(std::uint32_t type, const char* name);

/// Appends a description of `call` to `out`, such as "all_reduce of 10 x float, plus, ring".
void describe(line& out, const fingerprint& call);

/// Sets `reason.detail` to a sentence that describes two different calls and lists the fields in
/// which they differ. `rank` made the call `call`, and `other_rank` made the call `other_call`.
void describe_mismatch(failure& reason, int rank, const fingerprint& call, int other_rank,
                       const fingerprint& other_call);

/// Sets `reason.detail` to a sentence that says that `rank` and `other_rank` made different calls.
/// `rank` made its call so long ago that the fingerprint of the call is no longer stored. The
/// sentence therefore describes only `other_call`, the call of `other_rank`.
void describe_forgotten_call(failure& reason, int rank, int other_rank,
                             const fingerprint& other_call);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/base/fingerprint.ipp>
#endif
