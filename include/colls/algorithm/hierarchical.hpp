// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// hierarchical: an all_reduce for several hosts. The ranks of one host form a node. The ranks of a
// node first sum their data. Therefore the nodes exchange one vector per node, not one per rank.
// See Karonis and others, "Exploiting hierarchy in parallel computer networks to optimize
// collective operation performance" (2000). All ranks of a node take part in the exchange between
// nodes, as in Träff, Hunold, "Decomposing MPI collectives for exploiting multi-lane
// communication" (2020).

#include <colls/algorithm/circulant.hpp>

namespace colls::hierarchical {

/// First, the ranks of each node do a reduce_scatter, which gives each rank one chunk of the node's
/// sum. Then the ranks that hold the same chunk on different nodes do an all_reduce of this chunk.
/// Finally, the ranks of each node do an all_gather of the chunks. The number of chunks is the
/// number of ranks on the smallest node, so some ranks of larger nodes hold no chunk.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::hierarchical> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const Channel intra_node = net.intra_node(0);
    const int sharing = net.nodes().min_node_size();
    const partition shares(in.size(), sharing);
    detail::recycled_vector<std::size_t> offsets;
    for (int i = 0; i <= intra_node.size(); ++i) {
      offsets.push_back(i < sharing ? shares.offset(i) : in.size());
    }
    const partition parts = partition::from_offsets(offsets.data(), intra_node.size());
    const Data own = chunks(out, parts)[intra_node.rank()];
    co_await circulant::reduce_scatter.run(intra_node, in, own, parts, op);
    if (intra_node.rank() < sharing) {
      const Channel inter_node = net.inter_node(0);
      co_await circulant::all_reduce.run(inter_node, own, own, op);
    }
    co_await circulant::all_gather.run(intra_node, own, out, parts);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const int host_ranks = model.ranks_per_host();
    const int host_count = static_cast<int>(model.hosts());
    // The number of ranks on the last host, which may have fewer ranks than the other hosts. Each
    // host divides the data among this number of its ranks.
    const int sharing = model.ranks() - (host_count - 1) * host_ranks;
    const std::uint64_t n = model.bytes();
    const std::uint64_t share = (n + model.number(sharing) - 1) / model.number(sharing);
    const std::uint64_t piece = (share + model.number(host_count) - 1) / model.number(host_count);
    const auto near = [&](std::uint64_t bytes, int, int) { return model.hop(bytes, 0); };
    const auto far = [&](std::uint64_t bytes, int, int) { return model.hop(bytes, sharing); };
    const auto within = model.circulant_rounds(host_ranks, share, sharing, near);
    const auto smallest = model.circulant_rounds(sharing, share, sharing, near);
    const auto between = model.circulant_rounds(host_count, piece, host_count, far);
    loggp::phase sum;
    sum.messages = 2 * (model.number(host_count - 1) * within.messages + smallest.messages +
                        model.number(sharing) * between.messages);
    sum.bytes = 2 * (model.number(host_count - 1) * within.bytes + smallest.bytes +
                     model.number(sharing) * between.bytes);
    sum.critical_path = 2 * (within.critical_path + between.critical_path);
    return model.copied(model.reduced(sum, n + share), 2 * n + 2 * share);
  }
};
inline constexpr all_reduce_algorithm all_reduce;

}  // namespace colls::hierarchical
