// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// network_cost: the parameters of a network from which the cost model predicts the time of a call.

#include <cstddef>
#include <cstdint>

namespace colls {

/// Bytes up to which a message is sent eagerly. The data of a longer message waits for the
/// receiver's clear to send (CTS).
inline constexpr std::size_t eager_limit = 128 * 1024;

/// Bytes of eager messages of one sender that may wait at a rank for their receives. Part of the
/// wire protocol: sender and receiver both count them.
inline constexpr std::size_t eager_window = 4 * eager_limit;

using picoseconds = std::uint64_t;

/// The cost of a message between two ranks.
struct link_cost {
  picoseconds latency = 0;   // of the network
  picoseconds overhead = 0;  // of a core at either end, for one message after another
  picoseconds per_kib = 0;

  friend constexpr bool operator==(const link_cost&, const link_cost&) = default;
};

/// The cost parameters of a network (LogGP); equal on all ranks of a communicator.
struct network_cost {
  link_cost near;                    // between ranks of one host
  link_cost far;                     // between hosts
  picoseconds host_per_kib = 0;      // of bytes to other hosts, all ranks of a host together
  picoseconds reduce_per_kib = 0;    // of bytes that a rank reduces or copies itself
  picoseconds window_per_kib = 0;    // of bytes accessed in buffers of peers; 0: no windows
  std::uint64_t min_segment = 4096;  // bytes; shorter pieces gain nothing
  bool one_thread = false;           // one thread drives all ranks: the work of all adds up
  int cores = 0;                     // of a host whose ranks share them; 0: each has its own
  picoseconds time_slice = 0;        // for which a rank holds a core that it shares

  friend constexpr bool operator==(const network_cost&, const network_cost&) = default;
};

/// Default costs of processes that communicate over TCP, on one host and between hosts with a 10
/// Gbit/s network. On one host two processes copy each byte twice, and short pieces gain nothing.
inline constexpr network_cost tcp_cost{
    .near = {600'000, 1'200'000, 195'000},
    .far = {15'000'000, 2'000'000, 900'000},
    .host_per_kib = 850'000,
    .reduce_per_kib = 100'000,
    .min_segment = 2 << 20,
    .time_slice = 2'400'000,
};
/// Default costs of processes that share memory on a host and use TCP between hosts. A byte is
/// copied into shared memory, and copied or reduced out of it. A connection cuts messages into
/// pieces of its own.
inline constexpr network_cost hybrid_cost{
    .near = {110'000, 90'000, 120'000},
    .far = tcp_cost.far,
    .host_per_kib = tcp_cost.host_per_kib,
    .reduce_per_kib = 30'000,
    .window_per_kib = 15'000,
    .min_segment = 2 << 20,
    .time_slice = 2'200'000,
};
/// Default costs of an unknown network.
inline constexpr network_cost unknown_network_cost{
    .near = {1'000'000, 100'000, 80'000}, .far = {}, .min_segment = 8 << 10};
/// Default costs of threads of one process.
inline constexpr network_cost threads_cost{.near = {300'000, 150'000, 75'000},
                                           .far = {},
                                           .reduce_per_kib = 50'000,
                                           .min_segment = 256 << 10};
/// Default costs of ranks that one thread drives in turn: the work of all ranks adds up.
inline constexpr network_cost one_thread_cost{.near = {40'000, 70'000, 60'000},
                                              .far = {},
                                              .reduce_per_kib = 50'000,
                                              .min_segment = std::uint64_t{1} << 42,
                                              .one_thread = true};

}  // namespace colls
