// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// selection_query: the values on which the choice of an algorithm depends.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// The values on which the choice of an algorithm may depend. They are computed from the number of
/// ranks and from those arguments of the call that must be equal on all ranks. Therefore all ranks
/// compute the same values. The ranks check that these arguments are equal.
struct selection_query {
  collective operation = collective::none;
  std::uint64_t bytes = 0;  // the size of the whole vector; for all_to_all, of one rank's vector
  int ranks = 1;
  bool commutative = true;
  order reduction_order = order::any;
  bool reduces = false;
  /// Why the algorithm `native` cannot perform the call, or null if it can.
  const char* native_obstacle = nullptr;

  friend constexpr bool operator==(const selection_query&, const selection_query&) = default;
};

}  // namespace colls
