// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// network_cost: what messages cost, as far as a choice of algorithms depends on it.

#include <cstddef>
#include <cstdint>

namespace colls {

/// A message of more bytes waits until its receiver has asked for it.
inline constexpr std::size_t eager_limit = 128 * 1024;

/// So many bytes of such messages may wait at a rank for their receives, of one sender. Whoever
/// changes it changes the wire: the receiver counts, too.
inline constexpr std::size_t eager_window = 4 * eager_limit;

using picoseconds = std::uint64_t;

/// What a message costs between two ranks.
struct link_cost {
  picoseconds latency = 0;   // on its way
  picoseconds overhead = 0;  // at either end; messages of one rank pay it one after another
  picoseconds per_kib = 0;

  friend constexpr bool operator==(const link_cost&, const link_cost&) = default;
};

/// A network as far as a choice depends on it; equal on all ranks of a communicator.
struct network_cost {
  link_cost near;                      // between ranks of one host
  link_cost far;                       // between hosts
  picoseconds host_per_kib = 0;        // of far bytes, all ranks of a host together
  picoseconds reduce_per_kib = 0;      // of bytes that a rank reduces or copies itself
  picoseconds lent_per_kib = 0;        // of bytes in peers' lent buffers; 0: nobody lends any
  std::uint64_t least_segment = 4096;  // bytes; shorter pieces gain nothing
  bool one_thread = false;             // one thread does the work of all ranks: only sums count
  int cores = 0;                       // of a host, where its ranks share them; 0: each has its own
  picoseconds turn = 0;                // that a rank has a core which it shares

  friend constexpr bool operator==(const network_cost&, const network_cost&) = default;
};

/// Of processes that talk over TCP, on one host and on several that a 10 Gbit/s network connects.
/// On one host two processes copy each byte twice, and short pieces gain nothing.
inline constexpr network_cost tcp_cost{
    .near = {600'000, 1'200'000, 195'000},
    .far = {15'000'000, 2'000'000, 900'000},
    .host_per_kib = 850'000,
    .reduce_per_kib = 100'000,
    .least_segment = 2 << 20,
    .turn = 2'400'000,
};
/// The same where the ranks of a host share memory: a byte is copied into it, and copied or reduced
/// out of it; a link cuts messages into pieces of its own.
inline constexpr network_cost hybrid_cost{
    .near = {110'000, 90'000, 120'000},
    .far = tcp_cost.far,
    .host_per_kib = tcp_cost.host_per_kib,
    .reduce_per_kib = 30'000,
    .lent_per_kib = 15'000,
    .least_segment = 2 << 20,
    .turn = 2'200'000,
};
/// Of a network that nothing is known of.
inline constexpr network_cost some_cost{
    .near = {1'000'000, 100'000, 80'000}, .far = {}, .least_segment = 8 << 10};
/// Of threads of one process.
inline constexpr network_cost threads_cost{.near = {300'000, 150'000, 75'000},
                                           .far = {},
                                           .reduce_per_kib = 50'000,
                                           .least_segment = 256 << 10};
/// Of ranks that one thread drives in turn: what all of them do adds up.
inline constexpr network_cost one_thread_cost{.near = {40'000, 70'000, 60'000},
                                              .far = {},
                                              .reduce_per_kib = 50'000,
                                              .least_segment = std::uint64_t{1} << 42,
                                              .one_thread = true};

}  // namespace colls
