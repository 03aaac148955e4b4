// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// algorithm_choice: the algorithm and the parameters selected for a call, and their cost.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/network_cost.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// The algorithm of a call and its parameters; equal on all ranks.
struct algorithm_choice {
  colls::algorithm id = colls::algorithm::linear;
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: chunks are not cut
  int lanes = 1;            // pieces in flight at a time
  int radix = 4;            // of algorithms that have a radix

  friend constexpr bool operator==(const algorithm_choice&, const algorithm_choice&) = default;
};

/// The predicted cost of a call: messages and bytes of all ranks together, and its time.
struct cost {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  picoseconds time = 0;
};

}  // namespace colls
