// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pipeline: what chains and binary trees share. Segments of a buffer follow each other, several at
// a time: each lane runs the same coroutine over its segments as over a whole buffer.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern/trees.hpp>
#include <colls/channel/channel.hpp>

namespace colls::pipeline {

/// Runs `piece(lane, offset, count)` for every segment of a buffer like `data`.
template <channel Channel, buffer Data, class Piece>
task<> in_segments(Channel net, const Data& data, Piece piece) {
  const int segments = net.segments(bytes(data).size);
  const partition parts(data.size(), segments);
  const auto segment = [=](Channel lane, int k) {
    return piece(lane, parts.offset(k), parts.count(k));
  };
  return in_lanes(net, net.width(), segments, segment);
}

/// To the root: afterwards `out` of the rank without a parent holds the sum left (+) own (+) right
/// of all ranks below it; elsewhere `out` is not looked at. `in` is only read and may be `out`.
template <channel Channel, buffer Data, class Op>
task<> up(Channel net, Data in, Data out, pattern::in_order_node node, Op op) {
  const bool inner = node.parent >= 0 && (node.left >= 0 || node.right >= 0);
  scratch memory = net.scratch_like(in, inner ? in.size() : 0);
  const Data sum = inner ? placed(in, memory.data(), in.size()) : out;
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

/// From the root: afterwards `data` of every rank holds what that of the rank without a parent
/// held.
template <channel Channel, buffer Data>
task<> down(Channel net, Data data, pattern::in_order_node node) {
  if (node.parent >= 0) co_await net.recv(node.parent, bytes(data));
  if (node.left >= 0) co_await net.send(node.left, bytes(data));
  if (node.right >= 0) co_await net.send(node.right, bytes(data));
}

}  // namespace colls::pipeline
