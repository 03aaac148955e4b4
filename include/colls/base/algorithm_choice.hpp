// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// algorithm_choice: the algorithm and the parameters that were selected for a call, and the
// predicted cost of the call.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/network_cost.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// The algorithm of a call and the parameters of this algorithm. All ranks perform the call with
/// the same algorithm and the same parameters. A chunk is one rank's share of the data of the call.
struct algorithm_choice {
  colls::algorithm id = colls::algorithm::linear;
  std::size_t segment = 0;  // the size in bytes of a pipelined piece, or 0 if chunks are not cut
  int lanes = 1;            // the number of pieces that are in flight at the same time
  int radix = 4;            // the radix of knomial_tree, bruck and dissemination

  friend constexpr bool operator==(const algorithm_choice&, const algorithm_choice&) = default;
};

/// The predicted cost of a call: the number of messages and of bytes that all ranks send in total,
/// and the time that the call takes.
struct cost {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  picoseconds time = 0;
};

}  // namespace colls
