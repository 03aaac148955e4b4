// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: the optional arguments that every call accepts.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>

#include <type_traits>

namespace colls {

/// The trailing argument of every call. All members but `timeout` and `stream` must be equal on all
/// ranks.
struct options {
  colls::algorithm algorithm = colls::algorithm::automatic;  // a pinned one is never replaced
  time_span timeout{};                                       // of this operation; 0: COLLS_TIMEOUT
  std::size_t segment = 0;  // bytes of a pipelined piece of a chunk; 0: `tuning` decides
  int radix = 0;            // of knomial_tree, bruck, dissemination: 2 or more; 0: `tuning` decides
  colls::order order = colls::order::any;      // `rank`: gives the bits of the sum in rank order
  colls::wire wire = colls::wire::accumulate;  // `storage`: messages have the element type
  stream_ref stream{};  // for device memory: the operation starts after the stream's work so far
};
static_assert(std::is_trivially_destructible_v<options>);

}  // namespace colls
