// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: what every call may be told beyond its data.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>

#include <type_traits>

namespace colls {

/// Trailing argument of every call. All but `timeout` and `stream` must be equal on all ranks.
struct options {
  colls::algorithm algorithm = colls::algorithm::automatic;  // pinned: never silently another
  time_span timeout{};                                       // total deadline of this operation
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: `tuning` decides
  int radix = 0;            // of knomial_tree, bruck, dissemination: 2 or more; 0: `tuning` decides
  colls::order order = colls::order::any;      // `rank`: the bits of the sum in rank order
  colls::wire wire = colls::wire::accumulate;  // `storage`: sums travel in the elements' type
  stream_ref stream{};                         // of device memory: its work so far comes first
};
static_assert(std::is_trivially_destructible_v<options>);

}  // namespace colls
