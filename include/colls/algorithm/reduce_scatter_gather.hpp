// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_scatter_gather: a reduce for long buffers, which does a reduce_scatter and then a gather.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/circulant.hpp>
#include <colls/algorithm/typed_view.hpp>

namespace colls::reduce_scatter_gather {

/// First a reduce_scatter over a circulant graph leaves one chunk of the sum on every rank. Then
/// the root gathers the chunks over a binomial tree. The algorithm is that of Rabenseifner,
/// "Optimization of collective reduction operations" (2004), except that he uses recursive halving
/// for the reduce_scatter.
struct reduce_algorithm : built_in<collective::reduce, algorithm::reduce_scatter_gather> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    const partition parts(in.size(), net.size());
    const bool at_root = net.rank() == root;
    const std::size_t length = parts.count(net.rank());
    scratch memory = net.scratch_like(in, at_root ? 0 : length);
    const Data own = at_root ? chunks(out, parts)[root] : typed_view(in, memory.data(), length);
    co_await circulant::reduce_scatter.run(net, in, own, parts, op);
    co_await binomial_tree::gather.run(net, own, out, parts, root);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return circulant::reduce_scatter.cost(model, choice) +
           binomial_tree::gather.cost(model, choice);
  }
};
inline constexpr reduce_algorithm reduce;

}  // namespace colls::reduce_scatter_gather
