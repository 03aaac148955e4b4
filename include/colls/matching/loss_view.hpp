// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// loss_view: what one rank knows about lost ranks and broken links of a communicator, and which
// ranks survive according to it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

namespace colls {

/// A link between two ranks that at least one of them cannot use any more.
struct broken_link {
  std::int32_t low;
  std::int32_t high;

  broken_link(int a, int b) : low(std::min(a, b)), high(std::max(a, b)) {}
  friend bool operator==(const broken_link& a, const broken_link& b) {
    return a.low == b.low && a.high == b.high;
  }
  friend bool operator<(const broken_link& a, const broken_link& b) {
    return a.low != b.low ? a.low < b.low : a.high < b.high;
  }
};

/// What a rank knows about the losses of a communicator: the ranks that are proved to have ended,
/// and the broken links between the others. The knowledge of a rank only grows. Ranks are those of
/// the communicator.
class loss_view {
 public:
  const std::vector<std::int32_t>& proved() const { return proved_; }
  const std::vector<broken_link>& broken() const { return broken_; }
  bool empty() const { return proved_.empty() && broken_.empty() && excluded_.empty(); }
  /// Returns a number that grows whenever the view grows.
  std::uint64_t facts() const { return facts_; }

  bool is_proved(int rank) const { return contains(proved_, rank); }
  bool is_broken(int a, int b) const { return contains(broken_, broken_link(a, b)); }

  /// Adds a rank that is proved to have ended. Returns false if the view contains it.
  bool add_proved(int rank) {
    const auto place = std::lower_bound(proved_.begin(), proved_.end(), rank);
    if (place != proved_.end() && *place == rank) return false;
    proved_.insert(place, rank);
    ++facts_;
    return true;
  }
  /// Adds a broken link. Returns false if the view contains it.
  bool add_broken(int a, int b) {
    const broken_link link(a, b);
    const auto place = std::lower_bound(broken_.begin(), broken_.end(), link);
    if (place != broken_.end() && *place == link) return false;
    broken_.insert(place, link);
    ++facts_;
    return true;
  }
  /// Leaves out a rank that an earlier agreement has found lost. This is no fact of the view, since
  /// all ranks that take part in later agreements know of it.
  void exclude(int rank) {
    const auto place = std::lower_bound(excluded_.begin(), excluded_.end(), rank);
    if (place == excluded_.end() || *place != rank) excluded_.insert(place, rank);
  }
  bool is_excluded(int rank) const { return contains(excluded_, rank); }
  /// Adds all that `other` contains. Returns whether that was new.
  bool merge(const loss_view& other) {
    const std::size_t added = merge(proved_, other.proved_) + merge(broken_, other.broken_);
    facts_ += added;
    return added != 0;
  }
  friend bool operator==(const loss_view& a, const loss_view& b) {
    return a.proved_ == b.proved_ && a.broken_ == b.broken_;
  }

  /// Returns the ranks that `rank` goes on with, of a communicator of `size` ranks, in ascending
  /// order. These are ranks that can all reach each other. They are found in the part of the
  /// communicator to which `rank` is still connected, perhaps through other ranks: as long as a
  /// link inside the part is broken, the rank with the most broken links inside it is excluded,
  /// among equals the highest. The result need not contain `rank`.
  std::vector<int> survivors(int rank, int size) const {
    std::vector<int> part = part_of(rank, size);
    if (broken_.empty()) return part;
    // The broken links inside the part, and how many of them each rank has.
    std::vector<broken_link> links;
    std::vector<int> counts(static_cast<std::size_t>(size));
    const auto count_of = [&](int each) -> int& { return counts[static_cast<std::size_t>(each)]; };
    for (const broken_link& link : broken_) {
      if (!contains(part, link.low) || !contains(part, link.high)) continue;
      links.push_back(link);
      ++count_of(link.low);
      ++count_of(link.high);
    }
    while (!links.empty()) {
      const auto has_fewer = [&](int a, int b) {
        return std::pair(count_of(a), a) < std::pair(count_of(b), b);
      };
      const auto worst = std::max_element(part.begin(), part.end(), has_fewer);
      const int excluded = *worst;
      part.erase(worst);
      std::erase_if(links, [&](const broken_link& link) {
        if (link.low != excluded && link.high != excluded) return false;
        --count_of(link.low);
        --count_of(link.high);
        return true;
      });
    }
    return part;
  }

 private:
  template <class Element>
  static bool contains(const std::vector<Element>& sorted, const Element& element) {
    return std::binary_search(sorted.begin(), sorted.end(), element);
  }
  // Adds the elements of `more` to `sorted`, which is in ascending order, too. Returns how many of
  // them are new.
  template <class Element>
  static std::size_t merge(std::vector<Element>& sorted, const std::vector<Element>& more) {
    if (std::includes(sorted.begin(), sorted.end(), more.begin(), more.end())) return 0;
    std::vector<Element> all;
    all.reserve(sorted.size() + more.size());
    std::set_union(sorted.begin(), sorted.end(), more.begin(), more.end(), std::back_inserter(all));
    const std::size_t added = all.size() - sorted.size();
    sorted = std::move(all);
    return added;
  }
  // Returns the ranks that are not lost and that `rank` reaches, perhaps through others.
  std::vector<int> part_of(int rank, int size) const {
    std::vector<int> waiting;  // not reached yet
    waiting.reserve(static_cast<std::size_t>(size));
    for (int each = 0; each < size; ++each) {
      if (!is_proved(each) && !is_excluded(each)) waiting.push_back(each);
    }
    if (broken_.empty()) return waiting;
    std::erase(waiting, rank);
    std::vector<int> reached{rank};
    for (std::size_t i = 0; i < reached.size(); ++i) {
      const auto is_separate = [&](int each) { return is_broken(reached[i], each); };
      const auto first = std::partition(waiting.begin(), waiting.end(), is_separate);
      reached.insert(reached.end(), first, waiting.end());
      waiting.erase(first, waiting.end());
    }
    std::sort(reached.begin(), reached.end());
    return reached;
  }

  std::vector<std::int32_t> proved_;
  std::vector<broken_link> broken_;
  std::vector<std::int32_t> excluded_;
  std::uint64_t facts_ = 0;
};

}  // namespace colls
