// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// chain: collectives in which data travels from rank to rank along a chain, for very long buffers.
// The buffer is cut into segments, and a rank forwards one segment while it receives the next.
// Therefore sending the buffer along the whole chain takes little longer than sending it to one
// rank. See Van de Geijn, "On global combine operations" (1994). In the comments, p is the number
// of ranks.

#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/pipeline.hpp>

namespace colls::chain {

/// Afterwards `data` on every rank holds the root's data. The data travels from rank to rank in
/// circular order, from the root to the rank before the root. All ranks together send p-1 messages
/// per segment. A rank sends each segment at most once.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const pattern::in_order_node node = pattern::chain_from_root(net.rank(), net.size(), root);
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
    return pipeline::down(lane, data.subspan(offset, n), node);
  };
  return pipeline::in_segments(net, data, piece);
}

/// Afterwards `out` on the root holds the sum of `in` over all ranks. `out` on the other ranks is
/// ignored. On the root, `in` may be the same buffer as `out`; otherwise `in` is only read. All
/// ranks together send p-1 messages per segment. If the operation does not commute, two chains lead
/// to the root, one from the lowest rank and one from the highest rank. This way the inputs are
/// combined in rank order.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const pattern::in_order_node node =
      pattern::chain_to_root(net.rank(), net.size(), root, !is_commutative(op));
  const Data sum = net.rank() == root ? out : in;
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
    return pipeline::up(lane, in.subspan(offset, n), sum.subspan(offset, n), node, op);
  };
  return pipeline::in_segments(net, in, piece);
}

/// Afterwards `data` on rank r holds the sum, in rank order, of what `data` held on ranks 0 to r
/// before the call. All ranks together send p-1 messages per segment.
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
    return linear::scan(lane, data.subspan(offset, n), op);
  };
  return pipeline::in_segments(net, data, piece);
}

/// Afterwards `data` on rank r holds the sum, in rank order, of what `data` held on ranks 0 to r-1
/// before the call. `data` on rank 0 is unchanged. All ranks together send p-1 messages per
/// segment.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
    return linear::exscan(lane, data.subspan(offset, n), op);
  };
  return pipeline::in_segments(net, data, piece);
}

}  // namespace colls::chain
