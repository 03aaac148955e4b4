// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// scatter_all_gather: a broadcast for long buffers, which does a scatter and then an all_gather.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/ring.hpp>

namespace colls::scatter_all_gather {

/// Afterwards `data` on every rank holds what `data` on the root held. First a scatter over a
/// binomial tree sends one chunk to every rank. Then an all_gather sends the chunks around a ring.
/// See Barnett, Gupta, Payne, Shuler, van de Geijn, Watts, "Building a high-performance collective
/// communication library" (1994).
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const partition parts(data.size(), net.size());
  const Data all = net.rank() == root ? data : data.subspan(0, 0);
  co_await binomial_tree::scatter(net, all, chunks(data, parts)[net.rank()], parts, root);
  co_await ring::all_gather(net, data, parts);
}

}  // namespace colls::scatter_all_gather
