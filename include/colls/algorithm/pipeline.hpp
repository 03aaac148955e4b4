// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pipeline: functions that are shared by the algorithms on chains and on binary trees. A buffer is
// cut into segments, and the segments travel through the chain or tree one after another. Several
// segments are in flight at a time, one in each lane. A lane is a channel whose messages are
// separate from those of other lanes. Each lane handles one segment at a time. The coroutine that
// handles a segment treats it as if it were the whole buffer.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern/trees.hpp>

namespace colls::pipeline {

/// Divides `data` into segments, and runs `piece(lane, offset, count)` for each segment. `lane` is
/// the channel to use. The segment consists of the `count` elements of `data` from element `offset`
/// on. This function uses only the length of `data`, not its contents.
template <channel Channel, buffer Data, class Piece>
task<> in_segments(Channel net, const Data& data, Piece piece) {
  const int segments = net.segments(bytes(data).size);
  const partition parts(data.size(), segments);
  const auto segment = [=](Channel lane, int k) {
    return piece(lane, parts.offset(k), parts.count(k));
  };
  return run_in_lanes(net, net.width(), segments, segment);
}

/// Runs a reduce over a tree, whose root is the rank without a parent. Each rank receives the sums
/// of its left and its right child. It computes left sum (+) own input (+) right sum, where (+) is
/// `op`, and sends the result to its parent. Afterwards `out` on the root holds the sum of `in`
/// over all ranks. On the other ranks, `out` is ignored. `in` may be the same buffer as `out`;
/// otherwise it is only read.
template <channel Channel, buffer Data, class Op>
task<> up(Channel net, Data in, Data out, pattern::in_order_node node, Op op) {
  const bool is_inner = node.parent >= 0 && (node.left >= 0 || node.right >= 0);
  scratch memory = net.scratch_like(in, is_inner ? in.size() : 0);
  const Data sum = is_inner ? typed_view(in, memory.data(), in.size()) : out;
  Data partial = in;
  if (node.left >= 0) {
    co_await net.recv_reduce(node.left, partial, sum, op, incoming::left);
    partial = sum;
  }
  if (node.right >= 0) {
    co_await net.recv_reduce(node.right, partial, sum, op, incoming::right);
    partial = sum;
  }
  if (node.parent >= 0) {
    co_await net.send(node.parent, bytes(partial));
  } else {
    net.copy(bytes(out), bytes(partial));
  }
}

/// Runs a broadcast over a tree, whose root is the rank without a parent. Each rank receives the
/// data from its parent, and sends it to its children. Afterwards `data` of every rank holds what
/// `data` of the root held.
template <channel Channel, buffer Data>
task<> down(Channel net, Data data, pattern::in_order_node node) {
  if (node.parent >= 0) co_await net.recv(node.parent, bytes(data));
  if (node.left >= 0) co_await net.send(node.left, bytes(data));
  if (node.right >= 0) co_await net.send(node.right, bytes(data));
}

}  // namespace colls::pipeline
