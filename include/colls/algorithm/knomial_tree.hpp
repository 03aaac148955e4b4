// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// knomial_tree: broadcast and reduce for short buffers, over trees in which a rank has up to k-1
// children per level. With k = 2 this is a binomial tree. With a larger k, a tree has fewer levels.
// See Wilkins and others, "Generalized collective algorithms for the exascale era" (2023). Below, p
// is the number of ranks.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern/trees.hpp>

namespace colls::knomial_tree {

/// Runs a broadcast over a k-nomial tree, where k is `radix`.
template <channel Channel, buffer Data>
task<> broadcast_radix(Channel net, Data data, int root, int radix) {
  const pattern::knomial_tree tree(net.rank(), net.size(), root, radix);
  if (tree.parent >= 0) co_await net.recv(tree.parent, bytes(data));
  for (int k = tree.children; k-- > 0;) co_await net.send(tree.child(k), bytes(data));
}

/// Runs a reduce over a k-nomial tree, where k is `radix`.
template <channel Channel, buffer Data, class Op>
task<> reduce_radix(Channel net, Data in, Data out, int root, Op op, int radix) {
  const int top = is_commutative(op) ? root : 0;
  const pattern::knomial_tree tree(net.rank(), net.size(), top, radix);
  const bool at_root = net.rank() == root;
  scratch memory = net.scratch_like(in, tree.children > 0 && !at_root ? in.size() : 0);
  const Data sum = at_root ? out : typed_view(in, memory.data(), in.size());
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

/// All ranks together send p-1 messages, each with the whole buffer. One rank sends at most
/// (k-1) ceil(log_k p) of these messages, where k is the channel's radix.
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::knomial_tree> {
  static constexpr bool has_radix = true;

  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    return broadcast_radix(net, data, root, net.radix());
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.tree(model.bytes(), choice.radix, loggp_model::direction::down);
  }
};
inline constexpr broadcast_algorithm broadcast;

/// All ranks together send p-1 messages, each with the whole buffer. If the operation does not
/// commute, the root of the tree is rank 0, so that the sum is folded in rank order. Rank 0 then
/// sends the sum to `root`.
struct reduce_algorithm : built_in<collective::reduce, algorithm::knomial_tree> {
  static constexpr bool has_radix = true;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    return reduce_radix(net, in, out, root, op, net.radix());
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.tree(model.bytes(), choice.radix, loggp_model::direction::up);
  }
};
inline constexpr reduce_algorithm reduce;

}  // namespace colls::knomial_tree
