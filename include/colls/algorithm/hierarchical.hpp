// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// hierarchical: what crosses from host to host is sent once for each host, by all its ranks
// together. Karonis and others, "Exploiting hierarchy in parallel computer networks to optimize
// collective operation performance" (2000), and with all ranks of a node at work: Träff, Hunold,
// "Decomposing MPI collectives for exploiting multi-lane communication" (2020).

#include <colls/algorithm/circulant.hpp>

namespace colls::hierarchical {

/// Afterwards every rank holds the same sum in `data`. A node's ranks sum up one chunk each, ranks
/// with the same number on their nodes sum these up across, and every node gathers the results;
/// ranks that the smallest node has no counterpart of take no chunk. The operation has to commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce(Channel net, Data data, Op op) {
  const Channel inside = net.on_node(0);
  const int sharing = net.nodes().smallest();
  const partition shares(data.size(), sharing);
  detail::recycled_vector<std::size_t> offsets;
  for (int i = 0; i <= inside.size(); ++i) {
    offsets.push_back(i < sharing ? shares.offset(i) : data.size());
  }
  const partition parts = partition::from_offsets(offsets.data(), inside.size());
  const Data mine = chunks(data, parts)[inside.rank()];
  co_await circulant::reduce_scatter(inside, data, mine, parts, op);
  if (inside.rank() < sharing) {
    const Channel across = net.across_nodes(0);
    co_await circulant::all_reduce(across, mine, op);
  }
  co_await circulant::all_gather(inside, data, parts);
}

}  // namespace colls::hierarchical
