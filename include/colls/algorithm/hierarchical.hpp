// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// hierarchical: an all_reduce for several hosts. The ranks of one host form a node. The ranks of a
// node first sum their data. Therefore the nodes exchange one vector per node, not one per rank.
// See Karonis and others, "Exploiting hierarchy in parallel computer networks to optimize
// collective operation performance" (2000). All ranks of a node take part in the exchange between
// nodes, as in Träff, Hunold, "Decomposing MPI collectives for exploiting multi-lane communication"
// (2020).

#include <colls/algorithm/circulant.hpp>

namespace colls::hierarchical {

/// Afterwards `data` on every rank holds the sum of the inputs of all ranks, with the same bits on
/// all ranks. First, the ranks of each node do a reduce_scatter, which gives each rank one chunk of
/// the node's sum. Then the ranks that hold the same chunk on different nodes do an all_reduce of
/// this chunk. Finally, the ranks of each node do an all_gather of the chunks. The number of chunks
/// is the number of ranks on the smallest node, so some ranks of larger nodes hold no chunk. The
/// operation must commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce(Channel net, Data data, Op op) {
  const Channel intra_node = net.intra_node(0);
  const int sharing = net.nodes().min_node_size();
  const partition shares(data.size(), sharing);
  detail::recycled_vector<std::size_t> offsets;
  for (int i = 0; i <= intra_node.size(); ++i) {
    offsets.push_back(i < sharing ? shares.offset(i) : data.size());
  }
  const partition parts = partition::from_offsets(offsets.data(), intra_node.size());
  const Data own = chunks(data, parts)[intra_node.rank()];
  co_await circulant::reduce_scatter(intra_node, data, own, parts, op);
  if (intra_node.rank() < sharing) {
    const Channel inter_node = net.inter_node(0);
    co_await circulant::all_reduce(inter_node, own, op);
  }
  co_await circulant::all_gather(intra_node, data, parts);
}

}  // namespace colls::hierarchical
