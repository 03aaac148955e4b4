// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tuning: selects for each call the algorithm and the parameters with the shortest predicted time.
// A choice depends only on values that are equal on all ranks (the call, the ranks, and the costs
// that the ranks have agreed on), so all ranks make the same choice.

#include <colls/algorithm/description.hpp>
#include <colls/base/error.hpp>
#include <colls/selection/cost_model.hpp>

#include <algorithm>
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
inline std::string to_text(const explanation& choices) {
  detail::line first;
  first.add(
      "%s of %llu B over %d ranks: %s", name(choices.query.operation),
      static_cast<unsigned long long>(choices.query.bytes), choices.query.ranks,
      choices.predictions.empty() ? "no algorithm" : choices.predictions.front().algorithm->name);
  std::string text = first.text();
  for (const prediction& candidate : choices.predictions) {
    detail::line next;
    next.add("\n  %-22s %12.3f us", candidate.algorithm->name,
             static_cast<double>(candidate.cost.time) * 1e-6);
    if (candidate.choice.segment != 0) {
      next.add(", segments of %zu B in %d lanes", candidate.choice.segment, candidate.choice.lanes);
    }
    if (candidate.algorithm->has_radix) next.add(", radix %d", candidate.choice.radix);
    text += next.text();
  }
  return text;
}

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
                     const algorithm_info& info) const {
    const cost_model model(net_, query.bytes, query.ranks, on_host_ > 0 ? on_host_ : query.ranks);
    algorithm_choice choice = wanted;
    choice.id = info.id;
    prediction best{&info, choice, {}};
    bool found = false;
    const auto consider = [&](const algorithm_choice& candidate) {
      const cost predicted = model.predict(info, candidate);
      if (found && predicted.time >= best.cost.time) return;
      best = {&info, candidate, predicted};
      found = true;
    };
    if (choice.radix != 0 || !info.has_radix) {
      if (choice.radix == 0) choice.radix = 2;
      for_each_segmentation(model.segmented_bytes(info), choice, consider);
      return best;
    }
    if (choice.lanes == 0) choice.lanes = 1;  // algorithms with a radix use one lane
    for (int radix = 2; radix <= max_radix; radix = radix < 4 ? radix + 1 : 2 * radix) {
      choice.radix = radix;
      consider(choice);
      if (radix >= query.ranks) break;
    }
    return best;
  }

  /// Returns the prediction with the shortest time among the candidates, of which there must be at
  /// least one. If several have the same time, prefers `direct`, because its rounds take the fewest
  /// instructions, and otherwise the algorithm with the lowest number. Selects only the parameters
  /// that are 0 in `wanted`, and keeps the others.
  prediction choose(const selection_query& query, const algorithm_choice& wanted,
                    const algorithm_candidates& candidates) const {
    prediction best;
    for (const algorithm_info* const info : candidates) {
      const prediction candidate = predict(query, wanted, *info);
      if (best.algorithm == nullptr || is_before(candidate, best)) best = candidate;
    }
    return best;
  }
  /// Returns the same choice as `choose`, together with the predictions for all candidates.
  explanation explain(const selection_query& query, const algorithm_choice& wanted,
                      const algorithm_candidates& candidates) const {
    explanation result{query, {}, {}};
    for (const algorithm_info* const info : candidates) {
      result.predictions.push_back(predict(query, wanted, *info));
    }
    std::sort(result.predictions.begin(), result.predictions.end(), is_before);
    if (!result.predictions.empty()) result.chosen = result.predictions.front().choice;
    return result;
  }

 private:
  static bool is_before(const prediction& a, const prediction& b) {
    if (a.cost.time != b.cost.time) return a.cost.time < b.cost.time;
    const auto priority = [](algorithm algo) {
      return algo == algorithm::direct ? 0 : static_cast<int>(algo);
    };
    return priority(a.choice.id) < priority(b.choice.id);
  }

  static constexpr int max_radix = 64;
  static constexpr int max_lanes = 16;
  static constexpr std::uint64_t max_segment = 2 << 20;

  /// Calls `consider` for variants of `choice` that differ in the segment size and the number of
  /// lanes. `longest` is the length of the longest part that is cut into segments, or 0. Segments
  /// are the pieces in which data is pipelined; lanes are concurrent parts of a call. The segment
  /// sizes are 0 (no segments) and powers of two, in bytes. The numbers of lanes are 1, 2, 4, and
  /// so on. If `choice` has a segment size that is not 0, all variants have this segment size. If
  /// it has a number of lanes that is not 0, all variants have this number.
  template <class Consider>
  void for_each_segmentation(std::uint64_t longest, algorithm_choice choice,
                             const Consider& consider) const {
    const auto for_each_lane_count = [&] {
      const std::uint64_t segments =
          choice.segment == 0 ? 1 : (longest + choice.segment - 1) / choice.segment;
      if (choice.lanes != 0) return consider(choice);
      for (int lanes = 1; lanes <= max_lanes; lanes *= 2) {
        algorithm_choice candidate = choice;
        candidate.lanes = lanes;
        consider(candidate);
        if (static_cast<std::uint64_t>(lanes) >= segments) return;
      }
    };
    const bool is_segment_free = choice.segment == 0;
    for_each_lane_count();
    if (!is_segment_free) return;
    for (std::uint64_t segment = max_segment; segment >= net_.min_segment; segment /= 2) {
      if (segment >= longest) continue;
      choice.segment = segment;
      for_each_lane_count();
    }
  }

  network_cost net_ = unknown_network_cost;
  int on_host_ = 0;
};

}  // namespace colls
