// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// algorithm_choice: how a call is done, and what that costs.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/network_cost.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// How a call will be done; equal on all ranks.
struct plan {
  colls::algorithm how = colls::algorithm::linear;
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: chunks travel whole
  int lanes = 1;            // pieces in flight
  int radix = 4;            // of the algorithms that have one

  friend constexpr bool operator==(const plan&, const plan&) = default;
};

struct cost {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  picoseconds time = 0;
};

}  // namespace colls
