// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// clock_queue: what will happen in virtual time, and in which order.

#include <colls/base/clock.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::simulated {

/// Picoseconds of virtual time: a byte at 12.5 GB/s takes 80 of them.
using ticks = std::int64_t;
inline constexpr ticks per_nanosecond = 1000;
inline constexpr ticks no_time = INT64_MAX;

constexpr time_point to_nanoseconds(ticks time) { return time / per_nanosecond; }
constexpr ticks to_ticks(time_point time) {
  return time > no_time / per_nanosecond ? no_time : time * per_nanosecond;
}

/// Entries by time, and those of one time in the order in which they were pushed. Most times only
/// grow, message after message: an entry goes to the end of one of a few sorted runs, and to a heap
/// only if it fits none of them.
template <class Item>
class clock_queue {
 public:
  struct entry {
    ticks time;
    std::uint64_t order;
    Item item;
  };

  bool empty() const { return size_ == 0; }

  void push(ticks time, const Item& item) {
    const entry made{time, ++pushed_, item};
    int best = heap_place;
    ticks latest = -1;
    for (int i = 0; i < runs; ++i) {
      if (last_[i] <= time && last_[i] > latest) {
        latest = last_[i];
        best = i;
      }
    }
    if (best == heap_place) {
      into_heap(made);
      return;
    }
    ++size_;
    last_[best] = time;
    run_[best].push_back(made);
    if (run_[best].size() == 1) first_[best] = {time, made.order};
  }

  /// Something that was popped comes again later: after whatever was put off to that time before,
  /// and before all that was pushed for it.
  void defer(ticks until, const Item& item) { into_heap({until, ++deferred_, item}); }

  /// When the first entry is due; only if there is one.
  ticks next_time() const { return first_[next()].time; }

  entry pop() {
    const int from = next();
    --size_;
    popped_ = from;
    if (from == heap_place) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const entry found = heap_.back();
      heap_.pop_back();
      first_[from] = heap_.empty() ? nothing : place{heap_.front().time, heap_.front().order};
      return found;
    }
    ring& run = run_[from];
    const entry found = run.front();
    run.pop_front();
    if (run.size() == 0) {
      first_[from] = nothing;
      last_[from] = 0;
    } else {
      first_[from] = {run.front().time, run.front().order};
    }
    return found;
  }

  /// What will probably be popped `ahead` pops from now, or null.
  const Item* guess(std::size_t ahead) const {
    if (popped_ == heap_place || ahead >= run_[popped_].size()) return nullptr;
    return &run_[popped_][ahead].item;
  }

 private:
  static constexpr int runs = 4;
  static constexpr int heap_place = runs;

  struct place {
    ticks time;
    std::uint64_t order;
    bool before(const place& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };
  static constexpr place nothing{no_time, UINT64_MAX};

  int next() const {
    int best = 0;
    for (int i = 1; i <= runs; ++i) best = first_[i].before(first_[best]) ? i : best;
    return best;
  }
  void into_heap(const entry& made) {
    ++size_;
    heap_.push_back(made);
    std::push_heap(heap_.begin(), heap_.end(), later);
    first_[heap_place] = {heap_.front().time, heap_.front().order};
  }
  static bool later(const entry& a, const entry& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  /// First in, first out, in memory that is used again.
  class ring {
   public:
    std::size_t size() const { return end_ - begin_; }
    const entry& front() const { return at_[begin_ & mask_]; }
    const entry& operator[](std::size_t i) const { return at_[(begin_ + i) & mask_]; }
    void push_back(const entry& made) {
      if (size() == at_.size()) grow();
      at_[end_++ & mask_] = made;
    }
    void pop_front() { ++begin_; }

   private:
    void grow() {
      std::vector<entry> larger(std::max<std::size_t>(64, 2 * at_.size()));
      const std::size_t kept = size();
      for (std::size_t i = 0; i < kept; ++i) larger[i] = (*this)[i];
      at_.swap(larger);
      mask_ = at_.size() - 1;
      begin_ = 0;
      end_ = kept;
    }

    std::vector<entry> at_;
    std::size_t mask_ = 0;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
  };

  place first_[runs + 1] = {nothing, nothing, nothing, nothing,
                            nothing};  // of each run, of the heap
  ticks last_[runs] = {};              // of each run; 0 of an empty one
  ring run_[runs];
  std::vector<entry> heap_;
  std::uint64_t pushed_ = std::uint64_t{1} << 63;
  std::uint64_t deferred_ = 0;
  std::size_t size_ = 0;
  int popped_ = heap_place;
};

}  // namespace colls::simulated
