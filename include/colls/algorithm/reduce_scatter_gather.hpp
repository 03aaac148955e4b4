// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_scatter_gather: a reduce of long buffers, made of a reduce_scatter and a gather.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/circulant.hpp>
#include <colls/algorithm/typed_view.hpp>

namespace colls::reduce_scatter_gather {

/// Afterwards `out` of the root holds the sum; elsewhere `out` is not looked at. `in` is only read;
/// on the root it may be `out`. Every rank finishes a chunk over the circulant graph, and a
/// binomial tree gathers them. The operation has to commute. Rabenseifner, "Optimization of
/// collective reduction operations" (2004), has recursive halving for the first part.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const partition parts(in.size(), net.size());
  const bool at_root = net.rank() == root;
  const std::size_t length = parts.count(net.rank());
  scratch memory = net.scratch_like(in, at_root ? 0 : length);
  const Data mine = at_root ? chunks(out, parts)[root] : placed(in, memory.data(), length);
  co_await circulant::reduce_scatter(net, in, mine, parts, op);
  co_await binomial_tree::gather(net, mine, out, parts, root);
}

}  // namespace colls::reduce_scatter_gather
