// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_thresholds: the sizes at which `direct` changes how it goes. They are functions of values in
// the fingerprint, so all ranks agree.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// Whether `direct` sends each part of a vector to those who need it at once, in one round: that
/// takes less than to tell where it lies. `bytes`: of the whole vector, of one rank for all_to_all.
constexpr bool goes_whole(collective what, std::uint64_t bytes, int ranks) {
  const auto p = static_cast<std::uint64_t>(ranks);
  switch (what) {
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

/// Whether the root of a reduce by `direct` takes in all inputs, which lie in its cache together,
/// and adds them up alone: fewer messages. Of two ranks each has half to do in lent memory.
constexpr bool goes_to_root(std::uint64_t bytes, int ranks) {
  if (ranks == 2) return bytes <= 32 * 1024;
  return static_cast<std::uint64_t>(ranks - 1) * bytes < 256 * 1024;
}

/// In pieces of so many bytes `direct` sends a scan down a chain where buffers are not lent.
inline constexpr std::size_t unlent_piece = 2 * 1024 * 1024;

}  // namespace colls
