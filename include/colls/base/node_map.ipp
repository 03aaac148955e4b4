// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// node_map.ipp: the grouping of the ranks by host.

#include <colls/base/compiler.hpp>
#include <colls/base/node_map.hpp>

namespace colls {

COLLS_ONCE node_map::node_map(int size, const function_ref<int(int)>& host_of)
    : positions_(static_cast<std::size_t>(size)) {
  std::vector<int> hosts;
  std::vector<int> sizes;
  for (int rank = 0; rank < size; ++rank) {
    const int host = host_of(rank);
    std::size_t node = 0;
    // Consecutive ranks are usually on the same host, so the last element of `hosts` is the most
    // likely match.
    if (!hosts.empty() && hosts.back() == host) node = hosts.size() - 1;
    while (node < hosts.size() && hosts[node] != host) ++node;
    if (node == hosts.size()) {
      hosts.push_back(host);
      sizes.push_back(0);
    }
    positions_[static_cast<std::size_t>(rank)] = {static_cast<int>(node), sizes[node]++};
  }
  first_.push_back(0);
  for (const int ranks : sizes) {
    first_.push_back(first_.back() + ranks);
    if (min_node_size_ == 0 || ranks < min_node_size_) min_node_size_ = ranks;
    if (ranks > max_node_size_) max_node_size_ = ranks;
  }
  by_node_.resize(positions_.size());
  by_local_rank_.resize(sizes.size() * static_cast<std::size_t>(min_node_size_));
  for (int rank = 0; rank < size; ++rank) {
    const position where = position_of(rank);
    by_node_[static_cast<std::size_t>(first(where.node) + where.local_rank)] = rank;
    if (where.local_rank < min_node_size_) {
      by_local_rank_[static_cast<std::size_t>(where.local_rank * nodes() + where.node)] = rank;
    }
  }
}

}  // namespace colls
