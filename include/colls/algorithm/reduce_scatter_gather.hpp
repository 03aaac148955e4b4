// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// reduce_scatter_gather: a reduce for long buffers, which does a reduce_scatter and then a gather.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/circulant.hpp>
#include <colls/algorithm/typed_view.hpp>

namespace colls::reduce_scatter_gather {

/// Afterwards `out` on the root holds the sum of `in` over all ranks. On the other ranks, `out` is
/// ignored. On the root, `in` may be the same buffer as `out`; otherwise `in` is only read. First a
/// reduce_scatter over a circulant graph leaves one chunk of the sum on every rank. Then the root
/// gathers the chunks over a binomial tree. The operation must commute. The algorithm is that of
/// Rabenseifner, "Optimization of collective reduction operations" (2004), except that he uses
/// recursive halving for the reduce_scatter.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const partition parts(in.size(), net.size());
  const bool at_root = net.rank() == root;
  const std::size_t length = parts.count(net.rank());
  scratch memory = net.scratch_like(in, at_root ? 0 : length);
  const Data own = at_root ? chunks(out, parts)[root] : typed_view(in, memory.data(), length);
  co_await circulant::reduce_scatter(net, in, own, parts, op);
  co_await binomial_tree::gather(net, own, out, parts, root);
}

}  // namespace colls::reduce_scatter_gather
