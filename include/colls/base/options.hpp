// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// options: the optional arguments that every call accepts.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>

#include <type_traits>

namespace colls {

/// The last, optional argument of every call. All members except `timeout` and `stream` must be
/// equal on all ranks.
struct options {
  /// The algorithm of the call, or `automatic` to let the class `tuning` select one. If the caller
  /// has chosen an algorithm, colls never uses a different one.
  colls::algorithm algorithm = colls::algorithm::automatic;
  /// The time after which the operation fails. If this is 0, only the environment variable
  /// COLLS_TIMEOUT limits the time of the operation.
  time_span timeout{};
  /// The size in bytes of the pieces into which an algorithm divides the data, or one rank's share
  /// of the data, for pipelining. If this is 0, the class `tuning` selects the size.
  std::size_t segment = 0;
  /// The radix of the algorithms `knomial_tree`, `bruck` and `dissemination`. If this is 0, the
  /// class `tuning` selects the radix. Otherwise the radix must be at least 2.
  int radix = 0;
  /// The order in which a reduction combines the inputs. With `rank`, the result has the same bits
  /// as a sequential reduction in rank order.
  colls::order order = colls::order::any;
  /// The type of the partial sums that ranks send to each other. With `accumulate`, this is the
  /// type in which elements are combined. With `storage`, it is the element type.
  colls::wire wire = colls::wire::accumulate;
  /// The stream of a call on GPU memory. The operation starts after the work that was enqueued on
  /// the stream before the call.
  stream_ref stream{};
};
static_assert(std::is_trivially_destructible_v<options>);

}  // namespace colls
