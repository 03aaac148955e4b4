// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// double_tree: two binary trees, each for one half of the data, in which whoever has children in
// one has none in the other: all links are busy in both directions. Pipelined, for long buffers and
// many ranks. Sanders, Speck, Träff, "Two-tree algorithms for full bandwidth broadcast, reduction
// and scan" (2009).

#include <colls/algorithm/pipeline.hpp>

namespace colls::double_tree {

/// Runs `piece(lane, offset, count, node)` for the segments of both halves of a buffer like `data`,
/// `node` being this rank's place in the tree of that half.
template <channel Channel, buffer Data, class Piece>
task<> in_both_trees(Channel net, Data data, int root, Piece piece) {
  const pattern::double_tree trees(net.rank(), net.size(), root);
  const partition halves(data.size(), 2);
  const auto half = [&](int i, pattern::in_order_node node) {
    const std::size_t start = halves.offset(i);
    const auto segment = [=](Channel lane, std::size_t at, std::size_t n) {
      return piece(lane, start + at, n, node);
    };
    const Channel lane = net.lane(i * net.width());
    return net.beside(pipeline::in_segments(lane, chunks(data, halves)[i], segment));
  };
  co_await when_all(half(0, trees.first), half(1, trees.second));
}

/// Afterwards `data` of every rank holds what `data` of the root held. p-1 messages a segment.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n, pattern::in_order_node node) {
    return pipeline::down(lane, data.subspan(at, n), node);
  };
  return in_both_trees(net, data, root, piece);
}

/// Afterwards `out` of the root holds the sum; elsewhere `out` is not looked at. `in` is only read;
/// on the root it may be `out`. p-1 messages a segment. The order is that of the ranks from the
/// root on, around: the operation has to commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const Data sum = net.rank() == root ? out : in;
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n, pattern::in_order_node node) {
    return pipeline::up(lane, in.subspan(at, n), sum.subspan(at, n), node, op);
  };
  return in_both_trees(net, in, root, piece);
}

/// Afterwards every rank holds the same sum in `data`, folded in rank order, so the operation need
/// not commute: up to rank 0 and down again, 2(p-1) messages a segment.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n,
                         pattern::in_order_node node) -> task<> {
    const Data part = data.subspan(at, n);
    co_await pipeline::up(lane, part, part, node, op);
    co_await pipeline::down(lane, part, node);
  };
  return in_both_trees(net, data, 0, piece);
}

}  // namespace colls::double_tree
