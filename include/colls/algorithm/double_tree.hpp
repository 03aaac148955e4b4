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

/// All ranks together send p-1 messages per segment.
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::double_tree> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    const auto piece = [=](Channel lane, std::size_t offset, std::size_t n,
                           pattern::in_order_node node) {
      return pipeline::down(lane, data.subspan(offset, n), node);
    };
    return in_both_trees(net, data, root, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.double_tree(choice, false);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes() / 2; }
};
inline constexpr broadcast_algorithm broadcast;

/// All ranks together send p-1 messages per segment. The operation must commute, because the inputs
/// are folded in the circular order of ranks that begins at the root.
struct reduce_algorithm : built_in<collective::reduce, algorithm::double_tree> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    const Data sum = net.rank() == root ? out : in;
    const auto piece = [=](Channel lane, std::size_t offset, std::size_t n,
                           pattern::in_order_node node) {
      return pipeline::up(lane, in.subspan(offset, n), sum.subspan(offset, n), node, op);
    };
    return in_both_trees(net, in, root, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.double_tree(choice, true);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes() / 2; }
};
inline constexpr reduce_algorithm reduce;

/// The sum is folded in rank order, so the operation need not commute. The data travels up to rank
/// 0 and down again, in 2(p-1) messages per segment.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::double_tree> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const auto piece = [=](Channel lane, std::size_t offset, std::size_t n,
                           pattern::in_order_node node) -> task<> {
      const Data sum = out.subspan(offset, n);
      co_await pipeline::up(lane, in.subspan(offset, n), sum, node, op);
      co_await pipeline::down(lane, sum, node);
    };
    return in_both_trees(net, in, 0, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.double_tree_round_trip(choice);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes() / 2; }
};
inline constexpr all_reduce_algorithm all_reduce;

}  // namespace colls::double_tree
