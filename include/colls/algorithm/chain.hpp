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

/// The data travels from rank to rank in circular order, from the root to the rank before the root.
/// All ranks together send p-1 messages per segment. A rank sends each segment at most once.
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::chain> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    const pattern::in_order_node node = pattern::chain_from_root(net.rank(), net.size(), root);
    const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
      return pipeline::down(lane, data.subspan(offset, n), node);
    };
    return pipeline::in_segments(net, data, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.pipeline(model.bytes(), model.number(model.ranks() - 1), 1, choice, false);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes(); }
};
inline constexpr broadcast_algorithm broadcast;

/// Returns the cost of a reduction that travels along a chain of all ranks.
constexpr auto reduction_cost(const loggp_model& model, const algorithm_choice& choice) {
  return model.pipeline(model.bytes(), model.number(model.ranks() - 1), 1, choice, true);
}

/// All ranks together send p-1 messages per segment. If the operation does not commute, two chains
/// lead to the root, one from the lowest rank and one from the highest rank. This way the inputs
/// are combined in rank order.
struct reduce_algorithm : built_in<collective::reduce, algorithm::chain> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    const pattern::in_order_node node =
        pattern::chain_to_root(net.rank(), net.size(), root, !is_commutative(op));
    const Data sum = net.rank() == root ? out : in;
    const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
      return pipeline::up(lane, in.subspan(offset, n), sum.subspan(offset, n), node, op);
    };
    return pipeline::in_segments(net, in, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return reduction_cost(model, choice);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes(); }
};
inline constexpr reduce_algorithm reduce;

/// A scan or an exscan. Each segment takes the steps of the algorithm `OfSegment`. All ranks
/// together send p-1 messages per segment.
template <collective Coll, auto OfSegment>
struct prefix_algorithm : built_in<Coll, algorithm::chain> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const auto piece = [=](Channel lane, std::size_t offset, std::size_t n) {
      return OfSegment.run(lane, in.subspan(offset, n), out.subspan(offset, n), op);
    };
    return pipeline::in_segments(net, in, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return reduction_cost(model, choice);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes(); }
};
inline constexpr prefix_algorithm<collective::scan, linear::scan> scan;
inline constexpr prefix_algorithm<collective::exscan, linear::exscan> exscan;

}  // namespace colls::chain
