// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// scatter_all_gather: a broadcast for long buffers, which does a scatter and then an all_gather.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/ring.hpp>

namespace colls::scatter_all_gather {

/// First a scatter over a binomial tree sends one chunk to every rank. Then an all_gather sends the
/// chunks around a ring. See Barnett, Gupta, Payne, Shuler, van de Geijn, Watts, "Building a
/// high-performance collective communication library" (1994).
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::scatter_all_gather> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    const partition parts(data.size(), net.size());
    const Data all = net.rank() == root ? data : data.subspan(0, 0);
    const Data own = chunks(data, parts)[net.rank()];
    co_await binomial_tree::scatter.run(net, all, own, parts, root);
    co_await ring::all_gather.run(net, own, data, parts);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return binomial_tree::scatter.cost(model, choice) + ring::all_gather.cost(model, choice);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.chunk_bytes(); }
};
inline constexpr broadcast_algorithm broadcast;

}  // namespace colls::scatter_all_gather
