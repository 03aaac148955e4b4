// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pairwise: the exchange of everything, with one peer after the other. Thakur, Rabenseifner, Gropp,
// "Optimization of collective communication operations in MPICH" (2005).

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::pairwise {

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. Chunk i of this rank's `in_parts` is as long as this rank's
/// chunk of the `out_parts` on rank i. p-1 rounds, in each of them one message out and one in, so
/// that no link is asked for more than one at a time; every byte travels once.
template <channel Channel, buffer Data>
task<> all_to_all(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  net.copy(bytes(arriving[ring.rank]), bytes(outgoing[ring.rank]));
  for (int step = 1; step < net.size(); ++step) {
    const int to = ring.ahead(step);
    const int from = ring.back(step);
    co_await when_all(net.send(to, bytes(outgoing[to])), net.recv(from, bytes(arriving[from])));
  }
}

/// Afterwards rank r holds the finished chunk r in `out`, folded in rank order, so the operation
/// need not commute; `in` is only read, and `out` may be exactly this rank's chunk of it. p-1
/// rounds of one message out and one in; every chunk travels once.
template <channel Channel, buffer Data, class Op>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks outgoing(in, parts);
  const Data own = outgoing[ring.rank];
  const bool is_last = ring.rank + 1 == ring.size;
  scratch memory = net.scratch_like(own, is_last ? 0 : own.size());
  const Data upper = placed(own, memory.data(), own.size());
  Data lower = own;
  // Chunks come from the ranks below this one downwards, then from the highest one downwards; those
  // of the ranks above are summed apart.
  for (int step = 1; step < ring.size; ++step) {
    const int to = ring.ahead(step);
    const int from = ring.back(step);
    const auto send = [&] { return net.send(to, bytes(outgoing[to])); };
    if (from == ring.size - 1) {
      co_await when_all(send(), net.recv(from, bytes(upper)));
    } else if (from > ring.rank) {
      co_await when_all(send(), net.recv_reduce(from, upper, upper, op, incoming::left));
    } else {
      co_await when_all(send(), net.recv_reduce(from, lower, out, op, incoming::left));
      lower = out;
    }
  }
  if (is_last) {
    net.copy(bytes(out), bytes(lower));
  } else {
    net.reduce(out, lower, upper, op);
  }
}

}  // namespace colls::pairwise
