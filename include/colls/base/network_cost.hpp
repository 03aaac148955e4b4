// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// network_cost: the parameters of a network from which the cost model predicts the time of a call.

#include <colls/base/algorithm_names.hpp>

#include <cstddef>
#include <cstdint>

namespace colls {

/// The largest size in bytes of a message that is sent eagerly, without waiting for the receiver. A
/// longer message is sent only after the receiver has answered with a clear to send (CTS).
inline constexpr std::size_t eager_limit = 128 * 1024;

/// The largest number of bytes of eager messages from one sender that may wait at a rank until the
/// rank posts the matching receives. This limit is part of the wire protocol because both the
/// sender and the receiver count these bytes.
inline constexpr std::size_t eager_window = 4 * eager_limit;

using picoseconds = std::uint64_t;

/// The parameters from which the cost model computes the time of a message between two ranks.
/// `per_kib` is the time that each KiB of the message adds.
struct link_cost {
  picoseconds latency = 0;   // the time on the network, without the overheads
  picoseconds overhead = 0;  // the CPU time of a message at the sender, and again at the receiver
  picoseconds per_kib = 0;

  friend constexpr bool operator==(const link_cost&, const link_cost&) = default;
};

/// How long the native algorithm of a collective takes for some lengths of the vector, as measured.
struct native_cost {
  static constexpr int points = 4;
  static constexpr std::uint64_t sizes[points] = {8, 8 << 10, 256 << 10, 4 << 20};
  picoseconds times[points] = {};  // 0 if they are not known

  constexpr bool is_known() const { return times[0] != 0; }
  /// Returns the time for a vector of `bytes` bytes, on a line through two measured points.
  constexpr picoseconds time(std::uint64_t bytes) const {
    int right = 1;
    while (right < points - 1 && bytes > sizes[right]) ++right;
    const picoseconds low = times[right - 1];
    const picoseconds high = times[right] > low ? times[right] : low;
    if (bytes <= sizes[right - 1]) return low;
    const std::uint64_t length = bytes - sizes[right - 1];
    const picoseconds per_byte = (high - low) / (sizes[right] - sizes[right - 1]);
    constexpr picoseconds most = picoseconds{1} << 62;
    return per_byte > most / length ? most : low + length * per_byte;
  }

  friend constexpr bool operator==(const native_cost&, const native_cost&) = default;
};

/// The cost parameters of a network, as in the LogGP model. All ranks of a communicator use equal
/// parameters. Members whose names end in `per_kib` are times per KiB.
struct network_cost {
  link_cost near;                    // the cost of a message between ranks of one host
  link_cost far;                     // the cost of a message between hosts
  picoseconds host_per_kib = 0;      // for all data that the ranks of a host send to other hosts
  picoseconds reduce_per_kib = 0;    // for data that a rank reduces or copies itself
  picoseconds window_per_kib = 0;    // for direct access to a peer's buffer; 0 if not supported
  std::uint64_t min_segment = 4096;  // the length in bytes of the shortest useful segment
  bool one_thread = false;           // whether all ranks run in turn on one thread
  int cores = 0;                     // the number of cores of a host, or 0 to ignore core sharing
  picoseconds time_slice = 0;        // how long a rank runs on a shared core at a time
  native_cost native[11] = {};       // the native algorithms, from `barrier` to `exscan`

  /// Returns the times of the native algorithm of `coll`, which are not known if it has none.
  constexpr native_cost native_of(collective coll) const {
    const bool is_listed = coll >= collective::barrier && coll <= collective::exscan;
    return is_listed ? native[static_cast<int>(coll) - static_cast<int>(collective::barrier)]
                     : native_cost();
  }

  friend constexpr bool operator==(const network_cost&, const network_cost&) = default;
};

/// The default costs of processes that always communicate over TCP, even on the same host. Hosts
/// are connected by a 10 Gbit/s network. Between two processes on the same host, both the sender
/// and the receiver copy every byte.
inline constexpr network_cost tcp_cost{
    .near = {600'000, 1'200'000, 195'000},
    .far = {15'000'000, 2'000'000, 900'000},
    .host_per_kib = 850'000,
    .reduce_per_kib = 100'000,
    .min_segment = 2 << 20,
    .time_slice = 2'400'000,
};
/// The default costs of processes that communicate through shared memory on the same host and over
/// TCP between hosts. In shared memory, the sender writes a long message in pieces, and the
/// receiver copies or reduces one piece while the sender writes the next. `min_segment` is large
/// because shorter segments would bring no further overlap.
inline constexpr network_cost hybrid_cost{
    .near = {110'000, 90'000, 120'000},
    .far = tcp_cost.far,
    .host_per_kib = tcp_cost.host_per_kib,
    .reduce_per_kib = 30'000,
    .window_per_kib = 15'000,
    .min_segment = 2 << 20,
    .time_slice = 2'200'000,
};
/// The default costs of a network of unknown kind.
inline constexpr network_cost unknown_network_cost{
    .near = {1'000'000, 100'000, 80'000}, .far = {}, .min_segment = 8 << 10};
/// The default costs of ranks that are threads of one process.
inline constexpr network_cost threads_cost{.near = {300'000, 150'000, 75'000},
                                           .far = {},
                                           .reduce_per_kib = 50'000,
                                           .min_segment = 256 << 10};
/// The default costs of ranks that run in turn on one thread. The time of a call is therefore the
/// sum of the times of its ranks.
inline constexpr network_cost one_thread_cost{.near = {40'000, 70'000, 60'000},
                                              .far = {},
                                              .reduce_per_kib = 50'000,
                                              .min_segment = std::uint64_t{1} << 42,
                                              .one_thread = true};

}  // namespace colls
