// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// node_map: a map that groups the ranks of a communicator by host.

#include <colls/base/function_ref.hpp>

#include <cstddef>
#include <vector>

namespace colls {

/// The ranks of a communicator, grouped by host. The ranks of one host form a node. Nodes are
/// numbered in the order of their lowest ranks. Within a node, ranks are numbered 0, 1, ... in rank
/// order; these numbers are the local ranks. The map is equal on all ranks.
class node_map {
 public:
  /// Groups the ranks 0 to `size` - 1. `host_of(rank)` must return equal numbers for two ranks
  /// if and only if the ranks are on the same host.
  node_map(int size, const function_ref<int(int)>& host_of);

  /// The node of a rank, and the local rank of this rank.
  struct position {
    int node;
    int local_rank;
  };
  position position_of(int rank) const { return positions_[static_cast<std::size_t>(rank)]; }
  int nodes() const { return static_cast<int>(first_.size()) - 1; }
  int node_size(int node) const { return first(node + 1) - first(node); }
  /// Returns the number of ranks of the smallest node.
  int min_node_size() const { return min_node_size_; }
  /// Returns the number of ranks of the largest node.
  int max_node_size() const { return max_node_size_; }

  /// Returns the ranks of a node, ordered by local rank.
  const int* node_ranks(int node) const { return by_node_.data() + first(node); }
  /// Returns the ranks that have the local rank `local_rank`, ordered by node. `local_rank` must be
  /// less than `min_node_size()`.
  const int* ranks_with_local_rank(int local_rank) const {
    return by_local_rank_.data() + static_cast<std::ptrdiff_t>(local_rank) * nodes();
  }

 private:
  int first(int node) const { return first_[static_cast<std::size_t>(node)]; }

  std::vector<position> positions_;
  std::vector<int> first_;          // the index in `by_node_` of the first rank of each node
  std::vector<int> by_node_;        // all ranks, ordered by node
  std::vector<int> by_local_rank_;  // the results of `ranks_with_local_rank`, one after another
  int min_node_size_ = 0;
  int max_node_size_ = 0;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/base/node_map.ipp>
#endif
