// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// call_request: functions that make the fingerprint and the selection query of a call, and argument
// checks that several collectives share. The fingerprint consists of the arguments that must be
// equal on all ranks. The selection query consists of the values on which the choice of an
// algorithm depends. Most functions are inlined, because every call runs them.

#include <colls/base/options.hpp>
#include <colls/base/partition.hpp>
#include <colls/call/arguments.hpp>
#include <colls/call/call.hpp>
#include <colls/reduction/erased_reduction.hpp>
#include <colls/selection/tuning.hpp>

namespace colls::detail {

// ---- fingerprint and query

/// Returns the part of the algorithm choice that the caller has pinned in `opts`. The fields that
/// are not pinned are 0.
inline algorithm_choice pinned_choice(const options& opts) {
  return {opts.algorithm, opts.segment, 0, opts.radix};
}

/// Writes `choice` into the fingerprint `target`. `choice` is either a complete algorithm choice or
/// only the part that the caller has pinned.
[[gnu::always_inline]] inline void set_choice(fingerprint& target, const algorithm_choice& choice) {
  target.algorithm = choice.id;
  target.segment = choice.segment;
  target.lanes = static_cast<std::uint32_t>(choice.lanes);
  target.radix = static_cast<std::uint32_t>(choice.radix);
}

[[gnu::always_inline]] inline selection_query query_of(collective coll, std::size_t count,
                                                       int ranks, const reduction& op,
                                                       const options& opts) {
  return {coll,
          count * op.accumulate_size,
          ranks,
          op.op.commutative,
          op.op.associative ? opts.order : order::rank,
          true};
}

/// Returns the fingerprint of a call for which no algorithm has been selected yet. The fingerprint
/// contains only the part of the algorithm choice that the caller has pinned in `opts`.
[[gnu::always_inline]] inline fingerprint fingerprint_of(collective coll, std::uint32_t type,
                                                         std::size_t element_size,
                                                         std::size_t count, int root,
                                                         const options& opts) {
  fingerprint result;
  result.operation = coll;
  result.order = opts.order;
  result.root = root;
  result.type = type;
  result.element_size = static_cast<std::uint32_t>(element_size);
  result.count = count;
  set_choice(result, pinned_choice(opts));
  return result;
}
[[gnu::always_inline]] inline fingerprint fingerprint_of(collective coll, const reduction& op,
                                                         std::size_t count, int root,
                                                         const options& opts) {
  fingerprint result = fingerprint_of(coll, op.storage_id, op.storage_size, count, root, opts);
  result.op = op.op.id;
  result.accumulate = op.accumulate_id;
  result.wire = opts.wire;
  return result;
}
/// Mixes `shape` into the hash `result.shape` and returns the changed fingerprint. `shape` contains
/// block offsets or buffer sizes, which must be equal on all ranks.
inline fingerprint with_shape(fingerprint result, const std::vector<std::size_t>& shape) {
  for (const std::size_t offset : shape) result.shape = mix(result.shape, offset);
  return result;
}

/// Copies the state of the user's reduction operation into `new_call`, because the call may outlive
/// the user's object. Returns an operation that refers to the copied state.
[[gnu::always_inline]] inline any_op store_operation(call<void>& new_call, const reduction& op) {
  any_op stored = op.op;
  if (op.state_size != 0) stored.state = new_call.store_operation(op.op.state, op.state_size);
  return stored;
}
inline reduction store_reduction(call<void>& new_call, const reduction& op) {
  reduction stored = op;
  stored.op = store_operation(new_call, op);
  return stored;
}

/// Returns the partition of a vector into the blocks of `ranks` ranks. `offsets` contains the
/// offsets of the blocks. If `offsets` is empty, each block has `block` elements. The returned
/// partition refers to `offsets`, which must outlive it.
inline partition partition_of(const std::vector<std::size_t>& offsets, std::size_t block,
                              int ranks) {
  return offsets.empty() ? partition::blocks(block, ranks)
                         : partition::from_offsets(offsets.data(), ranks);
}

// ---- checks

/// Makes `check` fail unless `in` and `out` have equal length and are either the same buffer or
/// disjoint. Both buffers must have the same element type. For a valid pair, which is the common
/// case, only one quick test is made.
[[gnu::always_inline]] inline void check_pair(checks& check, const any_buffer& in,
                                              const any_buffer& out) {
  const auto a = reinterpret_cast<std::uintptr_t>(in.data());
  const auto b = reinterpret_cast<std::uintptr_t>(out.data());
  const std::uintptr_t distance = a < b ? b - a : a - b;
  if (in.size() == out.size() && (distance >= bytes(in).size || distance == 0)) return;
  check.check_size(out)
      .require(in.size() == out.size(), "in has %zu elements, out has %zu", in.size(), out.size())
      .require(!overlap_partially(in, out), "in and out overlap in part");
}
[[gnu::always_inline]] inline void check_root(checks& check, int root, int ranks) {
  if (root >= 0 && root < ranks) return;
  check.require(false, "root %d is not in 0..%d", root, ranks - 1);
}
/// Makes `check` fail unless the caller has passed one valid count per rank. `offsets` must be the
/// result of `offsets_of` for these counts. It is empty if the caller has passed no counts because
/// all blocks have equal length. There is nothing to check in this case.
inline void check_counts(checks& check, const std::vector<std::size_t>& offsets, int ranks,
                         std::size_t element_size) {
  if (offsets.empty()) return;
  check
      .require(offsets.size() == static_cast<std::size_t>(ranks) + 1,
               "there are %zu counts for %d ranks", offsets.size() - 1, ranks)
      .require(offsets.back() <= (invalid_count - 1) / element_size,
               "a count is negative or too large");
}

/// The blocks of an all_to_all on one rank. Both lists are results of `offsets_of`, or empty if all
/// blocks have equal length.
struct all_to_all_blocks {
  std::uint32_t type;
  std::size_t element_size;
  std::size_t in;  // elements
  std::size_t out;
  const std::vector<std::size_t>& sends;
  const std::vector<std::size_t>& receives;

  bool are_equal() const { return sends.empty() && receives.empty(); }
};

/// Makes `check` fail if the blocks of this rank do not fit together. `in_place` tells whether the
/// results overwrite the input.
inline void check_all_to_all(checks& check, const all_to_all_blocks& blocks, int rank, int ranks,
                             bool in_place) {
  const auto& [type, element_size, in, out, sends, receives] = blocks;
  check_counts(check, sends, ranks, element_size);
  check_counts(check, receives, ranks, element_size);
  if (check.failed()) return;
  if (blocks.are_equal()) {
    check
        .require(in % static_cast<std::size_t>(ranks) == 0,
                 "in has %zu elements, no multiple of %d ranks", in, ranks)
        .require(in == out, "in has %zu elements, out has %zu", in, out);
    return;
  }
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t sent = sends[me + 1] - sends[me];
  const std::size_t received = receives[me + 1] - receives[me];
  check
      .require(in == sends.back(), "in has %zu elements, the send counts are %zu", in, sends.back())
      .require(out == receives.back(), "out has %zu elements, the receive counts are %zu", out,
               receives.back())
      .require(sent == received, "this rank sends %zu elements to itself and receives %zu", sent,
               received)
      .require(!in_place || sends == receives, "in place, both lists of counts are equal");
}

/// Returns the fingerprint of an all_to_all. If the caller passes counts, the number of elements
/// may differ between ranks, so the fingerprint does not contain this number. Instead, the receiver
/// of each message compares the length of the message with its own count.
inline fingerprint fingerprint_of(const all_to_all_blocks& blocks, const options& opts) {
  const bool are_equal = blocks.are_equal();
  fingerprint result = fingerprint_of(collective::all_to_all, blocks.type, blocks.element_size,
                                      are_equal ? blocks.in : 0, -1, opts);
  result.shape = are_equal ? 0 : 1;
  return result;
}

}  // namespace colls::detail
