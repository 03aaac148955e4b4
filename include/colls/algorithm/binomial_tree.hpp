// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// binomial_tree: collectives over a binomial tree, for short buffers. They take ceil(log2 p)
// rounds, where p is the number of ranks. See Thakur, Rabenseifner, Gropp (2005).

#include <colls/algorithm/knomial_tree.hpp>
#include <colls/algorithm/rotated_partition.hpp>

namespace colls::binomial_tree {

/// Empty messages travel up the tree to rank 0 and down again, 2(p-1) messages in total.
struct barrier_algorithm : built_in<collective::barrier, algorithm::binomial_tree> {
  template <channel Channel>
  static task<> run(Channel net) {
    const pattern::knomial_tree tree(net.rank(), net.size(), 0, 2);
    const mutable_bytes token;
    for (int k = 0; k < tree.children; ++k) co_await net.recv(tree.child(k), token);
    if (tree.parent >= 0) {
      co_await net.send(tree.parent, token);
      co_await net.recv(tree.parent, token);
    }
    for (int k = tree.children; k-- > 0;) co_await net.send(tree.child(k), token);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    using enum loggp_model::direction;
    return model.tree(0, 2, up) + model.tree(0, 2, down);
  }
};
inline constexpr barrier_algorithm barrier;

/// All ranks together send p-1 messages, each with the whole buffer. One rank sends at most
/// ceil(log2 p) of these messages.
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::binomial_tree> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    return knomial_tree::broadcast_radix(net, data, root, 2);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.tree(model.bytes(), 2, loggp_model::direction::down);
  }
};
inline constexpr broadcast_algorithm broadcast;

/// All ranks together send p-1 messages, each with the whole buffer. If the operation does not
/// commute, the root of the tree is rank 0, so that the inputs are combined in rank order. Rank 0
/// then sends the sum to `root`.
struct reduce_algorithm : built_in<collective::reduce, algorithm::binomial_tree> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    return knomial_tree::reduce_radix(net, in, out, root, op, 2);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.tree(model.bytes(), 2, loggp_model::direction::up);
  }
};
inline constexpr reduce_algorithm reduce;

/// All ranks together send p-1 messages. A chunk is sent once along each edge of the path from its
/// rank to the root.
struct gather_algorithm : built_in<collective::gather, algorithm::binomial_tree> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data own, Data all, partition parts, int root) {
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

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.chunk_tree(loggp_model::direction::up);
  }
};
inline constexpr gather_algorithm gather;

/// Sends the same messages as `gather`, but in the opposite direction.
struct scatter_algorithm : built_in<collective::scatter, algorithm::binomial_tree> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data all, Data own, partition parts, int root) {
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

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.chunk_tree(loggp_model::direction::down);
  }
};
inline constexpr scatter_algorithm scatter;

}  // namespace colls::binomial_tree
