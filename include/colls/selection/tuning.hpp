// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tuning: which algorithm, in which pieces: the least of the predicted times. It depends on what
// all ranks know and nothing else: the call, the ranks, and costs that they have agreed on.

#include <colls/algorithm/selection_query.hpp>
#include <colls/base/error.hpp>
#include <colls/selection/cost_model.hpp>

#include <algorithm>
#include <vector>

namespace colls {

/// What one algorithm is predicted to take.
struct prediction {
  plan by;
  cost takes;
};

/// The choice for a call, and what else was to choose from, the best first.
struct explanation {
  question call;
  plan chosen;
  std::vector<prediction> all;
};

/// Some lines for people: the choice, and what each algorithm is predicted to take.
inline std::string to_text(const explanation& told) {
  detail::line first;
  first.add("%s of %llu B over %d ranks: %s", name(told.call.what),
            static_cast<unsigned long long>(told.call.bytes), told.call.ranks,
            name(told.chosen.how));
  std::string all = first.text();
  for (const prediction& each : told.all) {
    detail::line next;
    next.add("\n  %-22s %12.3f us", name(each.by.how), static_cast<double>(each.takes.time) * 1e-6);
    if (each.by.segment != 0) {
      next.add(", segments of %zu B in %d lanes", each.by.segment, each.by.lanes);
    }
    if (costs::has_radix(each.by.how)) next.add(", radix %d", each.by.radix);
    all += next.text();
  }
  return all;
}

/// The costs of a communicator's network, and the choices that follow from them.
class tuning {
 public:
  const network_cost& costs() const { return net_; }
  int ranks_on_host() const { return on_host_; }
  /// Equal on all ranks, while no call is under way. `ranks_on_host`: of the ranks, side by side,
  /// which share a host; 0: all.
  void set(const network_cost& net, int ranks_on_host = 0) {
    net_ = net;
    on_host_ = ranks_on_host;
  }

  /// That algorithm's best pieces, as far as `by` leaves them open (0), and their cost.
  prediction predict(const question& call, plan by) const {
    const colls::costs costs(net_, call.what, call.bytes, call.ranks,
                             on_host_ > 0 ? on_host_ : call.ranks);
    prediction best{by, {}};
    bool found = false;
    const auto consider = [&](const plan& tried) {
      const cost takes = costs.of(tried);
      if (found && takes.time >= best.takes.time) return;
      best = {tried, takes};
      found = true;
    };
    if (by.radix != 0 || !costs.has_radix(by.how)) {
      if (by.radix == 0) by.radix = 2;
      in_pieces(costs, by, consider);
      return best;
    }
    if (by.lanes == 0) by.lanes = 1;  // it uses one, and is told so
    for (int radix = 2; radix <= most_radix; radix = radix < 4 ? radix + 1 : 2 * radix) {
      by.radix = radix;
      consider(by);
      if (radix >= call.ranks) break;
    }
    return best;
  }

  /// The algorithm of the least predicted time among `legal` ones; of equal ones `direct`, whose
  /// rounds need the fewest instructions. Parts of `wanted` that are not 0 are kept.
  plan choose(const question& call, const plan& wanted, algorithm_set legal) const {
    prediction best;
    bool found = false;
    legal.each([&](algorithm how) {
      plan by = wanted;
      by.how = how;
      const prediction tried = predict(call, by);
      if (found && !is_before(tried, best)) return;
      best = tried;
      found = true;
    });
    return best.by;
  }
  /// The same with all that was to choose from.
  explanation explain(const question& call, const plan& wanted, algorithm_set legal) const {
    explanation made{call, {}, {}};
    legal.each([&](algorithm how) {
      plan by = wanted;
      by.how = how;
      made.all.push_back(predict(call, by));
    });
    std::sort(made.all.begin(), made.all.end(), is_before);
    if (!made.all.empty()) made.chosen = made.all.front().by;
    return made;
  }

 private:
  static bool is_before(const prediction& a, const prediction& b) {
    if (a.takes.time != b.takes.time) return a.takes.time < b.takes.time;
    const auto place = [](algorithm how) {
      return how == algorithm::direct ? 0 : static_cast<int>(how);
    };
    return place(a.by.how) < place(b.by.how);
  }

  static constexpr int most_radix = 64;
  static constexpr int most_lanes = 16;
  static constexpr std::uint64_t longest_segment = 2 << 20;

  /// Whole, and in segments of any power of two, in so many lanes that they fill the way.
  template <class Consider>
  void in_pieces(const colls::costs& costs, plan by, const Consider& consider) const {
    const std::uint64_t longest = costs.cut(by.how);
    const auto in_lanes = [&] {
      const std::uint64_t all = by.segment == 0 ? 1 : (longest + by.segment - 1) / by.segment;
      if (by.lanes != 0) return consider(by);
      for (int lanes = 1; lanes <= most_lanes; lanes *= 2) {
        plan tried = by;
        tried.lanes = lanes;
        consider(tried);
        if (static_cast<std::uint64_t>(lanes) >= all) return;
      }
    };
    const bool open = by.segment == 0;
    in_lanes();
    if (!open) return;
    for (std::uint64_t segment = longest_segment; segment >= net_.least_segment; segment /= 2) {
      if (segment >= longest) continue;
      by.segment = segment;
      in_lanes();
    }
  }

  network_cost net_ = some_cost;
  int on_host_ = 0;
};

}  // namespace colls
