// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// neighbour_exchange: an all_gather in which each rank exchanges chunks alternately with its lower
// and its upper neighbour.

#include <colls/algorithm/description.hpp>
#include <colls/base/pattern.hpp>

namespace colls::neighbour_exchange {

/// The number of ranks p must be even. Takes p/2 rounds. A rank sends one chunk in the first round
/// and two chunks in each later round. See Chen, Zhang, Yuan, "Performance evaluation of allgather
/// algorithms on terascale Linux cluster with fast Ethernet" (2005).
struct all_gather_algorithm : built_in<collective::all_gather, algorithm::neighbour_exchange> {
  static constexpr algorithm_needs needs{.even_ranks = true};

  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    const pattern::neighbours pair(net.rank(), net.size());
    const chunks chunk(out, parts);
    net.copy(bytes(chunk[net.rank()]), bytes(in));
    for (int round = 0; round < net.size() / 2; ++round) {
      const int partner = pair.partner(round);
      co_await when_all(net.send(partner, bytes(chunk[pair.sent(round)])),
                        net.recv(partner, bytes(chunk[pair.received(round)])));
    }
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.neighbours();
  }
};
inline constexpr all_gather_algorithm all_gather;

}  // namespace colls::neighbour_exchange
