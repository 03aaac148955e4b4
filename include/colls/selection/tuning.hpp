// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tuning: selects for each call the algorithm and the parameters with the shortest predicted time.
// A choice depends only on values that are equal on all ranks (the call, the ranks, and the costs
// that the ranks have agreed on), so all ranks make the same choice.

#include <colls/algorithm/description.hpp>
#include <colls/base/error.hpp>

#include <vector>

namespace colls {

/// The predicted cost of a call with one algorithm.
struct prediction {
  const algorithm_info* algorithm = nullptr;
  algorithm_choice choice;
  colls::cost cost;
};

/// The algorithms that can perform a call. They are the descriptions in an algorithm table.
class algorithm_candidates {
 public:
  /// Adds an algorithm. There may be at most `max_size` algorithms.
  constexpr void add(const algorithm_info& info) { list_[size_++] = &info; }
  constexpr bool empty() const { return size_ == 0; }
  constexpr const algorithm_info* const* begin() const { return list_; }
  constexpr const algorithm_info* const* end() const { return list_ + size_; }

  static constexpr std::size_t max_size = 32;

 private:
  const algorithm_info* list_[max_size] = {};
  std::size_t size_ = 0;
};

/// The choice for a call, and the predictions for all algorithms that can perform the call. The
/// predictions are sorted by time, the shortest first.
struct explanation {
  selection_query query;
  algorithm_choice chosen;
  std::vector<prediction> predictions;
};

/// Returns a text of several lines: first the choice, then the predicted time of each algorithm.
std::string to_text(const explanation& choices);

/// The selection of algorithms for a communicator, and the costs of the network on which the
/// selection is based.
class tuning {
 public:
  const network_cost& costs() const { return net_; }
  int ranks_on_host() const { return on_host_; }
  /// Sets the costs of the network, which must be equal on all ranks. No call may be in flight.
  /// `ranks_on_host` is the number of consecutive ranks that share a host, or 0 if all ranks share
  /// one host.
  void set(const network_cost& net, int ranks_on_host = 0) {
    net_ = net;
    on_host_ = ranks_on_host;
  }

  /// Returns the parameters with the shortest predicted time for the algorithm `info`, and the
  /// predicted cost. Selects only the parameters that are 0 in `wanted`, and keeps the others.
  prediction predict(const selection_query& query, const algorithm_choice& wanted,
                     const algorithm_info& info) const;

  /// Returns the prediction with the shortest time among the candidates, of which there must be at
  /// least one. If several have the same time, prefers `direct`, because its rounds take the fewest
  /// instructions, and otherwise the algorithm with the lowest number. Selects only the parameters
  /// that are 0 in `wanted`, and keeps the others.
  prediction choose(const selection_query& query, const algorithm_choice& wanted,
                    const algorithm_candidates& candidates) const;
  /// Returns the same choice as `choose`, together with the predictions for all candidates.
  explanation explain(const selection_query& query, const algorithm_choice& wanted,
                      const algorithm_candidates& candidates) const;

 private:
  network_cost net_ = unknown_network_cost;
  int on_host_ = 0;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/selection/tuning.ipp>
#endif
