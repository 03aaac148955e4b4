// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// binomial_tree: collectives over a binomial tree, for short buffers. They take ceil(log2 p)
// rounds, where p is the number of ranks. See Thakur, Rabenseifner, Gropp (2005).

#include <colls/algorithm/knomial_tree.hpp>
#include <colls/algorithm/rotated_partition.hpp>

namespace colls::binomial_tree {

/// Does not complete on any rank before all ranks have called `barrier`. Empty messages travel up
/// the tree to rank 0 and down again, 2(p-1) messages in total.
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

/// Afterwards `data` of every rank holds what `data` of the root held. All ranks together send p-1
/// messages, each with the whole buffer. One rank sends at most ceil(log2 p) of these messages.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  return knomial_tree::broadcast_radix(net, data, root, 2);
}

/// Afterwards `out` on the root holds the sum of `in` over all ranks. On the other ranks, `out` is
/// ignored. On the root, `in` may be the same buffer as `out`; otherwise `in` is only read. All
/// ranks together send p-1 messages, each with the whole buffer. If the operation does not commute,
/// the root of the tree is rank 0, so that the inputs are combined in rank order. Rank 0 then sends
/// the sum to `root`.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  return knomial_tree::reduce_radix(net, in, out, root, op, 2);
}

/// Afterwards chunk r of `all` on the root holds `own` of rank r. On the other ranks, `all` is
/// ignored. On the root, `own` may be exactly the root's chunk of `all`. All ranks together send
/// p-1 messages. A chunk is sent once along each edge of the path from its rank to the root.
template <channel Channel, buffer Data>
task<> gather(Channel net, Data own, Data all, partition parts, int root) {
  const pattern::knomial_tree tree(net.rank(), net.size(), root, 2);
  const rotated_partition order(parts, root);
  if (tree.parent < 0) {
    net.copy(bytes(chunks(all, parts)[root]), bytes(own));
    for (int k = 0; k < tree.children; ++k) {
      const auto range = order.range(all, tree.child_range(k));
      if (range.is_contiguous()) {
        co_await net.recv(tree.child(k), bytes(range.head));
        continue;
      }
      const std::size_t head = bytes(range.head).size;
      scratch memory = net.scratch_like(all, order.count(tree.child_range(k)));
      co_await net.recv(tree.child(k), memory.all());
      net.copy(bytes(range.head), {memory.data(), head});
      net.copy(bytes(range.tail), {memory.data() + head, bytes(range.tail).size});
    }
    co_return;
  }
  if (tree.children == 0) {
    co_await net.send(tree.parent, bytes(own));
    co_return;
  }
  scratch memory = net.scratch_like(own, order.count(tree.range()));
  const Data subtree = typed_view(own, memory.data(), order.count(tree.range()));
  net.copy(bytes(subtree.subspan(0, own.size())), bytes(own));
  for (int k = 0; k < tree.children; ++k) {
    const std::size_t offset = order.count({tree.relative, tree.child_range(k).first});
    co_await net.recv(tree.child(k),
                      bytes(subtree.subspan(offset, order.count(tree.child_range(k)))));
  }
  co_await net.send(tree.parent, bytes(subtree));
}

/// Afterwards `own` on rank r holds chunk r of `all` on the root. On the other ranks, `all` is
/// ignored. On the root, `own` may be exactly the root's chunk of `all`. Sends the same messages as
/// `gather`, but in the opposite direction.
template <channel Channel, buffer Data>
task<> scatter(Channel net, Data all, Data own, partition parts, int root) {
  const pattern::knomial_tree tree(net.rank(), net.size(), root, 2);
  const rotated_partition order(parts, root);
  if (tree.parent < 0) {
    for (int k = tree.children; k-- > 0;) {
      const auto range = order.range(all, tree.child_range(k));
      if (range.is_contiguous()) {
        co_await net.send(tree.child(k), bytes(range.head));
        continue;
      }
      const std::size_t head = bytes(range.head).size;
      scratch memory = net.scratch_like(all, order.count(tree.child_range(k)));
      net.copy({memory.data(), head}, bytes(range.head));
      net.copy({memory.data() + head, bytes(range.tail).size}, bytes(range.tail));
      co_await net.send(tree.child(k), memory.all());
    }
    net.copy(bytes(own), bytes(chunks(all, parts)[root]));
    co_return;
  }
  if (tree.children == 0) {
    co_await net.recv(tree.parent, bytes(own));
    co_return;
  }
  scratch memory = net.scratch_like(own, order.count(tree.range()));
  const Data subtree = typed_view(own, memory.data(), order.count(tree.range()));
  co_await net.recv(tree.parent, bytes(subtree));
  for (int k = tree.children; k-- > 0;) {
    const std::size_t offset = order.count({tree.relative, tree.child_range(k).first});
    co_await net.send(tree.child(k),
                      bytes(subtree.subspan(offset, order.count(tree.child_range(k)))));
  }
  net.copy(bytes(own), bytes(subtree.subspan(0, own.size())));
}

}  // namespace colls::binomial_tree
