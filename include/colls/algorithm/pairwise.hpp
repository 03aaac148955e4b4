// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pairwise: the exchange of everything, with one peer after the other.

#include <colls/channel.hpp>
#include <colls/partition.hpp>
#include <colls/pattern.hpp>

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

}  // namespace colls::pairwise
