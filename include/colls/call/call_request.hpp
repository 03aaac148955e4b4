// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a call asks for: as ranks compare it, as an algorithm is chosen by it, and what is wrong
// with it. Most of this stands in every call, and is inlined there.

#include <colls/base/options.hpp>
#include <colls/base/partition.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/call.hpp>
#include <colls/reduction/erased_reduction.hpp>
#include <colls/selection/tuning.hpp>

namespace colls::detail {

// ---- what is asked

/// What a choice leaves open is 0.
inline plan wishes(const options& how) { return {how.algorithm, how.segment, 0, how.radix}; }

/// Puts into a fingerprint what was chosen, or asked for.
[[gnu::always_inline]] inline void put(fingerprint& print, const plan& by) {
  print.how = by.how;
  print.segment = by.segment;
  print.lanes = static_cast<std::uint32_t>(by.lanes);
  print.radix = static_cast<std::uint32_t>(by.radix);
}

[[gnu::always_inline]] inline question asks(collective what, std::size_t count, int ranks,
                                            const reduction& by, const options& how) {
  return {what,
          count * by.accumulate_size,
          ranks,
          by.op.commutative,
          by.op.associative ? how.order : order::rank,
          true};
}

/// What was asked; options stand where the plan will.
[[gnu::always_inline]] inline fingerprint print_of(collective what, std::uint32_t type,
                                                   std::size_t element_size, std::size_t count,
                                                   int root, const options& how) {
  fingerprint print;
  print.what = what;
  print.sum = how.order;
  print.root = root;
  print.type = type;
  print.element_size = static_cast<std::uint32_t>(element_size);
  print.count = count;
  put(print, wishes(how));
  return print;
}
[[gnu::always_inline]] inline fingerprint print_of(collective what, const reduction& by,
                                                   std::size_t count, int root,
                                                   const options& how) {
  fingerprint print = print_of(what, by.storage_id, by.storage_size, count, root, how);
  print.op = by.op.id;
  print.accumulate = by.accumulate_id;
  print.wire = how.wire;
  return print;
}
/// The same with counts of each rank's own.
inline fingerprint with(fingerprint print, const std::vector<std::size_t>& shape) {
  for (const std::size_t offset : shape) print.shape = mix(print.shape, offset);
  return print;
}

/// The user's operation may end before the call does.
[[gnu::always_inline]] inline any_op keep_operation(call<void>& made, const reduction& by) {
  any_op kept = by.op;
  if (by.state_size != 0) kept.state = made.keep(by.op.state, by.state_size);
  return kept;
}
inline reduction keep(call<void>& made, const reduction& by) {
  reduction kept = by;
  kept.op = keep_operation(made, by);
  return kept;
}

// ---- what is wrong

inline partition shares_of(const std::vector<std::size_t>& offsets, std::size_t block, int ranks) {
  return offsets.empty() ? partition::blocks(block, ranks)
                         : partition::from_offsets(offsets.data(), ranks);
}
/// Two buffers of one element type have equal length and share no part; good ones at once.
[[gnu::always_inline]] inline void check_pair(checks& check, const any_buffer& in,
                                              const any_buffer& out) {
  const auto a = reinterpret_cast<std::uintptr_t>(in.data());
  const auto b = reinterpret_cast<std::uintptr_t>(out.data());
  const std::uintptr_t apart = a < b ? b - a : a - b;
  if (in.size() == out.size() && (apart >= bytes(in).size || apart == 0)) return;
  check.fits(out)
      .require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(), out.size())
      .require(!partly_overlap(in, out), "in and out overlap in part");
}
[[gnu::always_inline]] inline void check_root(checks& check, int root, int ranks) {
  if (root >= 0 && root < ranks) return;
  check.require(false, "root %d is not in 0..%d", root, ranks - 1);
}
inline void check_counts(checks& check, const std::vector<std::size_t>& offsets, int ranks,
                         std::size_t element) {
  if (offsets.empty()) return;
  check
      .require(offsets.size() == static_cast<std::size_t>(ranks) + 1,
               "there are %zu counts for %d ranks", offsets.size() - 1, ranks)
      .require(offsets.back() <= (unfit - 1) / element, "a count is negative or too large");
}

}  // namespace colls::detail
