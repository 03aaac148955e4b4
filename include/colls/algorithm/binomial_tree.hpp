// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// binomial_tree: ceil(log2 p) rounds from or to one root, for short buffers.

#include <colls/algorithm/rotated.hpp>
#include <colls/channel.hpp>
#include <colls/partition.hpp>
#include <colls/pattern.hpp>

namespace colls::binomial_tree {

/// Afterwards `data` of every rank holds what `data` of the root held. p-1 messages of the whole
/// buffer, at most ceil(log2 p) from one rank.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const pattern::binomial_tree tree(net.rank(), net.size(), root);
  if (tree.parent >= 0) co_await net.recv(tree.parent, bytes(data));
  for (int k = tree.children; k-- > 0;) co_await net.send(tree.child(k), bytes(data));
}

/// Whether an operation on the elements of `Data` commutes: for an erased one known at run time.
template <buffer Data, class Op>
constexpr bool commutes(const Op& op) {
  if constexpr (std::same_as<Op, any_op>) {
    return op.commutative;
  } else {
    return commutative_for<Op, element_t<Data>>;
  }
}

/// Afterwards `out` of the root holds the sum; elsewhere `out` is not looked at. `in` is only read;
/// on the root it may be `out`. p-1 messages of the whole buffer. An operation that does not
/// commute is folded in rank order: in the tree around rank 0, which sends the sum on to the root.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  const int top = commutes<Data>(op) ? root : 0;
  const pattern::binomial_tree tree(net.rank(), net.size(), top);
  const bool at_root = net.rank() == root;
  scratch memory = net.scratch_like(in, tree.children > 0 && !at_root ? in.size() : 0);
  const Data sum = at_root ? out : placed(in, memory.data(), in.size());
  Data partial = in;
  for (int k = 0; k < tree.children; ++k) {
    co_await net.recv_reduce(tree.child(k), partial, sum, op, incoming::right);
    partial = sum;
  }
  if (tree.parent >= 0) co_await net.send(tree.parent, bytes(partial));
  if (top == root) {
    if (at_root) net.copy(bytes(out), bytes(partial));
  } else if (net.rank() == top) {
    co_await net.send(root, bytes(partial));
  } else if (at_root) {
    co_await net.recv(top, bytes(out));
  }
}

/// Afterwards chunk r of `all` on the root holds `mine` of rank r; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages; a chunk travels once for each
/// level of the tree above its rank.
template <channel Channel, buffer Data>
task<> gather(Channel net, Data mine, Data all, partition parts, int root) {
  const pattern::binomial_tree tree(net.rank(), net.size(), root);
  const rotated order(parts, root);
  if (tree.parent < 0) {
    net.copy(bytes(chunks(all, parts)[root]), bytes(mine));
    for (int k = 0; k < tree.children; ++k) {
      const auto place = order.in(all, tree.child_range(k));
      if (place.whole()) {
        co_await net.recv(tree.child(k), bytes(place.head));
        continue;
      }
      const std::size_t head = bytes(place.head).size;
      scratch memory = net.scratch_like(all, order.count(tree.child_range(k)));
      co_await net.recv(tree.child(k), memory.all());
      net.copy(bytes(place.head), {memory.data(), head});
      net.copy(bytes(place.tail), {memory.data() + head, bytes(place.tail).size});
    }
    co_return;
  }
  if (tree.children == 0) {
    co_await net.send(tree.parent, bytes(mine));
    co_return;
  }
  scratch memory = net.scratch_like(mine, order.count(tree.range()));
  const Data held = placed(mine, memory.data(), order.count(tree.range()));
  net.copy(bytes(held.subspan(0, mine.size())), bytes(mine));
  for (int k = 0; k < tree.children; ++k) {
    const std::size_t at = order.count({tree.relative, tree.child_range(k).first});
    co_await net.recv(tree.child(k), bytes(held.subspan(at, order.count(tree.child_range(k)))));
  }
  co_await net.send(tree.parent, bytes(held));
}

/// Afterwards `mine` on rank r holds chunk r of `all` on the root; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. The messages of gather, the other way.
template <channel Channel, buffer Data>
task<> scatter(Channel net, Data all, Data mine, partition parts, int root) {
  const pattern::binomial_tree tree(net.rank(), net.size(), root);
  const rotated order(parts, root);
  if (tree.parent < 0) {
    for (int k = tree.children; k-- > 0;) {
      const auto place = order.in(all, tree.child_range(k));
      if (place.whole()) {
        co_await net.send(tree.child(k), bytes(place.head));
        continue;
      }
      const std::size_t head = bytes(place.head).size;
      scratch memory = net.scratch_like(all, order.count(tree.child_range(k)));
      net.copy({memory.data(), head}, bytes(place.head));
      net.copy({memory.data() + head, bytes(place.tail).size}, bytes(place.tail));
      co_await net.send(tree.child(k), memory.all());
    }
    net.copy(bytes(mine), bytes(chunks(all, parts)[root]));
    co_return;
  }
  if (tree.children == 0) {
    co_await net.recv(tree.parent, bytes(mine));
    co_return;
  }
  scratch memory = net.scratch_like(mine, order.count(tree.range()));
  const Data held = placed(mine, memory.data(), order.count(tree.range()));
  co_await net.recv(tree.parent, bytes(held));
  for (int k = tree.children; k-- > 0;) {
    const std::size_t at = order.count({tree.relative, tree.child_range(k).first});
    co_await net.send(tree.child(k), bytes(held.subspan(at, order.count(tree.child_range(k)))));
  }
  net.copy(bytes(mine), bytes(held.subspan(0, mine.size())));
}

}  // namespace colls::binomial_tree
