// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// neighbour_exchange: each rank exchanges with its two neighbours by turns.

#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::neighbour_exchange {

/// Afterwards `data` of every rank holds all chunks: p/2 rounds, all but the first of two chunks. p has
/// to be even. Chen, Zhang, Yuan, "Performance evaluation of allgather algorithms on terascale Linux
/// cluster with fast Ethernet" (2005).
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const pattern::neighbours pair(net.rank(), net.size());
  const chunks chunk(data, parts);
  for (int round = 0; round < net.size() / 2; ++round) {
    const int partner = pair.partner(round);
    co_await when_all(net.send(partner, bytes(chunk[pair.given(round)])),
                      net.recv(partner, bytes(chunk[pair.taken(round)])));
  }
}

}  // namespace colls::neighbour_exchange
