// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_thresholds: the sizes at which the `direct` algorithms switch between methods. All ranks
// make the same decision, because it depends only on values that are equal on all ranks.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// Returns whether `direct` treats a vector as short. Each rank sends the data of a short vector in
/// one round to all ranks that need it, because this takes less time than telling the peers where
/// the data lies. `bytes` is the size of the whole vector, or of one rank's vector for all_to_all.
constexpr bool is_short_vector(collective coll, std::uint64_t bytes, int ranks) {
  const auto p = static_cast<std::uint64_t>(ranks);
  switch (coll) {
    case collective::barrier:
      return true;
    case collective::all_gather:
    case collective::all_to_all:
      return bytes <= 32 * 1024;
    case collective::gather:
    case collective::scatter:
      return bytes <= 16 * 1024 * p;
    case collective::reduce_scatter:
      return bytes <= 16 * 1024;
    case collective::broadcast:
      return bytes <= 32 * 1024 / p;
    default:
      return ranks == 1 || bytes <= 16 * 1024 / p;
  }
}

/// Returns whether the root of a `direct` reduce computes the whole sum itself. As long as all
/// inputs together fit into the root's cache, this is faster than dividing the work between the
/// ranks, because it takes fewer messages. `bytes` is the size of one input. With two ranks the
/// limit is lower, because each rank can do half of the work in shared memory.
constexpr bool is_reduced_at_root(std::uint64_t bytes, int ranks) {
  if (ranks == 2) return bytes <= 32 * 1024;
  return static_cast<std::uint64_t>(ranks - 1) * bytes < 256 * 1024;
}

/// If some rank does not expose its buffer, the ranks of a `direct` scan pass on their data as
/// messages, in pieces of this many bytes.
inline constexpr std::size_t scan_chain_piece = 2 * 1024 * 1024;

}  // namespace colls
