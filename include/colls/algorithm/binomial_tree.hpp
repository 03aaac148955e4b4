// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// binomial_tree: ceil(log2 p) rounds, for short buffers. Thakur, Rabenseifner, Gropp (2005).

#include <colls/algorithm/knomial_tree.hpp>
#include <colls/algorithm/rotated_partition.hpp>

namespace colls::binomial_tree {

/// Ends on no rank before all ranks have called it: word goes up to rank 0 and down again. 2(p-1)
/// empty messages.
template <channel Channel>
task<> barrier(Channel net) {
  const pattern::knomial_tree tree(net.rank(), net.size(), 0, 2);
  const mutable_bytes token;
  for (int k = 0; k < tree.children; ++k) co_await net.recv(tree.child(k), token);
  if (tree.parent >= 0) {
    co_await net.send(tree.parent, token);
    co_await net.recv(tree.parent, token);
  }
  for (int k = tree.children; k-- > 0;) co_await net.send(tree.child(k), token);
}

/// Afterwards `data` of every rank holds what `data` of the root held. p-1 messages of the whole
/// buffer, at most ceil(log2 p) from one rank.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  return knomial_tree::spread(net, data, root, 2);
}

/// Afterwards `out` of the root holds the sum; elsewhere `out` is not looked at. `in` is only read;
/// on the root it may be `out`. p-1 messages of the whole buffer. An operation that does not
/// commute is folded in rank order: in the tree around rank 0, which sends the sum on to the root.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  return knomial_tree::sum_up(net, in, out, root, op, 2);
}

/// Afterwards chunk r of `all` on the root holds `mine` of rank r; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages; a chunk travels once for each
/// level of the tree above its rank.
template <channel Channel, buffer Data>
task<> gather(Channel net, Data mine, Data all, partition parts, int root) {
  const pattern::knomial_tree tree(net.rank(), net.size(), root, 2);
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
  const pattern::knomial_tree tree(net.rank(), net.size(), root, 2);
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
