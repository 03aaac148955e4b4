// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// chain: each rank has one before it and one after it, and segments follow each other, so that a
// very long buffer takes little longer than one hop. Van de Geijn, "On global combine operations"
// (1994).

#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/pipeline.hpp>

namespace colls::chain {

/// Afterwards `data` of every rank holds what `data` of the root held: it goes once around, from
/// the root to the rank before it. p-1 messages a segment, none of them from a rank twice.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const pattern::in_order_node place = pattern::chain_from(net.rank(), net.size(), root);
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n) {
    return pipeline::down(lane, data.subspan(at, n), place);
  };
  return pipeline::in_segments(net, data, piece);
}

/// Afterwards `out` of the root holds the sum; elsewhere `out` is not looked at. `in` is only read;
/// on the root it may be `out`. p-1 messages a segment. An operation that does not commute is
/// folded in rank order: chains from both ends meet at the root.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const pattern::in_order_node place =
      pattern::chain_to(net.rank(), net.size(), root, !is_commutative(op));
  const Data sum = net.rank() == root ? out : in;
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n) {
    return pipeline::up(lane, in.subspan(at, n), sum.subspan(at, n), place, op);
  };
  return pipeline::in_segments(net, in, piece);
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r, folded in rank order one after the
/// other. p-1 messages a segment.
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n) {
    return linear::scan(lane, data.subspan(at, n), op);
  };
  return pipeline::in_segments(net, data, piece);
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r-1, folded in rank order one after
/// the other; that of rank 0 stays as it was. p-1 messages a segment.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const auto piece = [=](Channel lane, std::size_t at, std::size_t n) {
    return linear::exscan(lane, data.subspan(at, n), op);
  };
  return pipeline::in_segments(net, data, piece);
}

}  // namespace colls::chain
