// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// node_map: which ranks of a communicator share a host.

#include <cstddef>
#include <vector>

namespace colls {

/// The ranks of a communicator by host. Nodes are numbered in the order of their lowest ranks; the
/// ranks of a node, 0, 1, ... in the order of their ranks. Equal on all ranks.
class node_map {
 public:
  /// `host_of(rank)` is any number that ranks of one host have in common.
  template <class HostOf>
  node_map(int size, const HostOf& host_of) : places_(static_cast<std::size_t>(size)) {
    std::vector<int> hosts;
    std::vector<int> sizes;
    for (int rank = 0; rank < size; ++rank) {
      const int host = host_of(rank);
      std::size_t node = 0;
      // Most ranks are on the last host so far.
      if (!hosts.empty() && hosts.back() == host) node = hosts.size() - 1;
      while (node < hosts.size() && hosts[node] != host) ++node;
      if (node == hosts.size()) {
        hosts.push_back(host);
        sizes.push_back(0);
      }
      places_[static_cast<std::size_t>(rank)] = {static_cast<int>(node), sizes[node]++};
    }
    first_.push_back(0);
    for (const int ranks : sizes) {
      first_.push_back(first_.back() + ranks);
      if (smallest_ == 0 || ranks < smallest_) smallest_ = ranks;
      if (ranks > largest_) largest_ = ranks;
    }
    by_node_.resize(places_.size());
    by_column_.resize(sizes.size() * static_cast<std::size_t>(smallest_));
    for (int rank = 0; rank < size; ++rank) {
      const place at = of(rank);
      by_node_[static_cast<std::size_t>(first(at.node) + at.local)] = rank;
      if (at.local < smallest_) {
        by_column_[static_cast<std::size_t>(at.local * nodes() + at.node)] = rank;
      }
    }
  }

  struct place {
    int node;
    int local;
  };
  place of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  int nodes() const { return static_cast<int>(first_.size()) - 1; }
  int ranks_of(int node) const { return first(node + 1) - first(node); }
  /// Ranks of the smallest node.
  int smallest() const { return smallest_; }
  int largest() const { return largest_; }

  /// The ranks of a node.
  const int* ranks_on(int node) const { return by_node_.data() + first(node); }
  /// The ranks with that number on their node, by node; only for numbers that every node has.
  const int* ranks_across(int local) const {
    return by_column_.data() + static_cast<std::ptrdiff_t>(local) * nodes();
  }

 private:
  int first(int node) const { return first_[static_cast<std::size_t>(node)]; }

  std::vector<place> places_;
  std::vector<int> first_;      // in by_node_
  std::vector<int> by_node_;    // ranks
  std::vector<int> by_column_;  // ranks
  int smallest_ = 0;
  int largest_ = 0;
};

}  // namespace colls
