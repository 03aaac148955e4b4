// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// double_tree: pipelined collectives for long buffers and many ranks. The data travels over two
// binary trees, each of which carries one half of the data. An inner rank of one tree is a leaf of
// the other tree, so all connections are busy in both directions. See Sanders, Speck, Träff,
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan" (2009). Below, p is the
// number of ranks.

#include <colls/algorithm/pipeline.hpp>

namespace colls::double_tree {

/// Divides `data` into two halves, one for each tree, and divides each half into segments. Runs
/// `piece(lane, offset, count, node)` for each segment. `lane` is the channel to use. The segment
/// consists of the `count` elements of `data` from element `offset` on. `node` is this rank's node
/// in the tree that carries the segment.
template <channel Channel, buffer Data, class Piece>
task<> in_both_trees(Channel net, Data data, int root, Piece piece) {
  const pattern::double_tree trees(net.rank(), net.size(), root);
  const partition halves(data.size(), 2);
  const auto half = [&](int i, pattern::in_order_node node) {
    const std::size_t start = halves.offset(i);
    const auto segment = [=](Channel lane, std::size_t offset, std::size_t n) {
      return piece(lane, start + offset, n, node);
    };
    const Channel lane = net.lane(i * net.width());
    return net.concurrent(pipeline::in_segments(lane, chunks(data, halves)[i], segment));
  };
  co_await when_all(half(0, trees.first), half(1, trees.second));
}

/// Afterwards `data` of every rank holds what `data` of the root held. All ranks together send p-1
/// messages per segment.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n,
                         pattern::in_order_node node) {
    return pipeline::down(lane, data.subspan(offset, n), node);
  };
  return in_both_trees(net, data, root, piece);
}

/// Afterwards `out` on the root holds the sum of `in` over all ranks. On the other ranks, `out` is
/// ignored. On the root, `in` may be the same buffer as `out`; otherwise `in` is only read. All
/// ranks together send p-1 messages per segment. The operation must commute, because the inputs are
/// folded in the circular order of ranks that begins at the root.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const Data sum = net.rank() == root ? out : in;
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n,
                         pattern::in_order_node node) {
    return pipeline::up(lane, in.subspan(offset, n), sum.subspan(offset, n), node, op);
  };
  return in_both_trees(net, in, root, piece);
}

/// Afterwards `data` of every rank holds the sum of the inputs of all ranks, with the same bits on
/// all ranks. The sum is folded in rank order, so the operation need not commute. The data travels
/// up to rank 0 and down again, in 2(p-1) messages per segment.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  const auto piece = [=](Channel lane, std::size_t offset, std::size_t n,
                         pattern::in_order_node node) -> task<> {
    const Data part = data.subspan(offset, n);
    co_await pipeline::up(lane, part, part, node, op);
    co_await pipeline::down(lane, part, node);
  };
  return in_both_trees(net, data, 0, piece);
}

}  // namespace colls::double_tree
