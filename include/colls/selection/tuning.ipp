// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tuning.ipp: the predictions for a call, and the choice.

#include <colls/base/compiler.hpp>
#include <colls/selection/cost_model.hpp>
#include <colls/selection/tuning.hpp>

#include <algorithm>

namespace colls {

namespace detail {

inline constexpr int max_radix = 64;
inline constexpr int max_lanes = 16;
inline constexpr std::uint64_t max_segment = 2 << 20;

/// Calls `consider` for variants of `choice` that differ in the segment size and the number of
/// lanes. `longest` is the length of the longest part that is cut into segments, or 0. Segments
/// are the pieces in which data is pipelined; lanes are concurrent parts of a call. The segment
/// sizes are 0 (no segments) and powers of two, in bytes. The numbers of lanes are 1, 2, 4, and
/// so on. If `choice` has a segment size that is not 0, all variants have this segment size. If
/// it has a number of lanes that is not 0, all variants have this number.
template <class Consider>
void for_each_segmentation(std::uint64_t longest, std::uint64_t min_segment,
                           algorithm_choice choice, const Consider& consider) {
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
  for (std::uint64_t segment = max_segment; segment >= min_segment; segment /= 2) {
    if (segment >= longest) continue;
    choice.segment = segment;
    for_each_lane_count();
  }
}

/// Returns whether `a` is preferred to `b`.
inline bool is_before(const prediction& a, const prediction& b) {
  if (a.cost.time != b.cost.time) return a.cost.time < b.cost.time;
  const auto priority = [](algorithm algo) {
    return algo == algorithm::direct ? 0 : static_cast<int>(algo);
  };
  return priority(a.choice.id) < priority(b.choice.id);
}

}  // namespace detail

COLLS_ONCE std::string to_text(const explanation& choices) {
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

COLLS_ONCE prediction tuning::predict(const selection_query& query, const algorithm_choice& wanted,
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
    detail::for_each_segmentation(model.segmented_bytes(info), net_.min_segment, choice, consider);
    return best;
  }
  if (choice.lanes == 0) choice.lanes = 1;  // algorithms with a radix use one lane
  for (int radix = 2; radix <= detail::max_radix; radix = radix < 4 ? radix + 1 : 2 * radix) {
    choice.radix = radix;
    consider(choice);
    if (radix >= query.ranks) break;
  }
  return best;
}

COLLS_ONCE prediction tuning::choose(const selection_query& query, const algorithm_choice& wanted,
                                     const algorithm_candidates& candidates) const {
  prediction best;
  for (const algorithm_info* const info : candidates) {
    const prediction candidate = predict(query, wanted, *info);
    if (best.algorithm == nullptr || detail::is_before(candidate, best)) best = candidate;
  }
  return best;
}

COLLS_ONCE explanation tuning::explain(const selection_query& query, const algorithm_choice& wanted,
                                       const algorithm_candidates& candidates) const {
  explanation result{query, {}, {}};
  for (const algorithm_info* const info : candidates) {
    result.predictions.push_back(predict(query, wanted, *info));
  }
  std::sort(result.predictions.begin(), result.predictions.end(), detail::is_before);
  if (!result.predictions.empty()) result.chosen = result.predictions.front().choice;
  return result;
}

}  // namespace colls
