// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_thresholds: the sizes at which the `direct` algorithms switch between methods. All ranks
// make the same decision, because it depends only on values that are equal on all ranks.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// Returns whether the algorithm `direct` treats a vector as short. Each rank sends the data of a
/// short vector in one round to all ranks that need it. For a short vector, this takes less time
/// than telling the peers where the data lies. `bytes` is the size of the longest buffer that a
/// rank passes to the collective. For a gather, for example, it is the size of the root's output.
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

/// Returns whether the root of a `direct` reduce computes the whole sum itself. `bytes` is the size
/// of one input. A sum at the root takes fewer messages than dividing the work among the ranks. It
/// is faster if all inputs together fit into the root's cache. With two ranks, dividing the work is
/// already faster for shorter inputs, because each rank computes one half of the sum in shared
/// memory.
constexpr bool is_reduced_at_root(std::uint64_t bytes, int ranks) {
  if (ranks == 2) return bytes <= 32 * 1024;
  return static_cast<std::uint64_t>(ranks - 1) * bytes < 256 * 1024;
}

/// The maximum size of a piece, in bytes. A `direct` scan or exscan cuts its data into such pieces
/// if some rank does not expose its buffer. In this case, each rank sends its partial sum of each
/// piece to the next rank in a message.
inline constexpr std::size_t scan_chain_piece = 2 * 1024 * 1024;

}  // namespace colls
