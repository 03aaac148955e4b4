// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// neighbour_exchange: an all_gather in which each rank exchanges chunks alternately with its lower
// and its upper neighbour.

#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::neighbour_exchange {

/// Before the call, chunk r of `data` on rank r holds the data of rank r. Afterwards every rank
/// holds all chunks. The number of ranks p must be even. Takes p/2 rounds. A rank sends one chunk
/// in the first round and two chunks in each later round. See Chen, Zhang, Yuan, "Performance
/// evaluation of allgather algorithms on terascale Linux cluster with fast Ethernet" (2005).
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const pattern::neighbours pair(net.rank(), net.size());
  const chunks chunk(data, parts);
  for (int round = 0; round < net.size() / 2; ++round) {
    const int partner = pair.partner(round);
    co_await when_all(net.send(partner, bytes(chunk[pair.sent(round)])),
                      net.recv(partner, bytes(chunk[pair.received(round)])));
  }
}

}  // namespace colls::neighbour_exchange
