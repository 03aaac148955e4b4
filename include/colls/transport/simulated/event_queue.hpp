// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The event queue of the discrete-event simulation, which orders events by virtual time.

#include <colls/base/clock.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace colls::simulated {

/// Virtual time in picoseconds. At 12.5 GB/s, the transfer of a byte takes 80 ticks.
using ticks = std::int64_t;
inline constexpr ticks per_nanosecond = 1000;
inline constexpr ticks no_time = INT64_MAX;

constexpr time_point to_nanoseconds(ticks time) { return time / per_nanosecond; }
constexpr ticks to_ticks(time_point time) {
  return time > no_time / per_nanosecond ? no_time : time * per_nanosecond;
}

/// A priority queue of entries, ordered by time. Entries with equal times are popped in the order
/// in which they were pushed. The queue consists of a heap and a few sorted FIFO queues, which are
/// called runs. `push` appends an entry to a run whose last entry is not later than the new entry.
/// `push` adds an entry to the heap only if there is no such run. This is rare, because most
/// entries are later than the entry that was pushed before them.
template <class Item>
class event_queue {
 public:
  struct entry {
    ticks time;
    std::uint64_t order;
    Item item;
  };

  bool empty() const { return size_ == 0; }

  void push(ticks time, const Item& item) {
    const entry added{time, ++pushed_, item};
    int best = heap_index;
    ticks latest = -1;
    for (int i = 0; i < runs; ++i) {
      if (last_[i] <= time && last_[i] > latest) {
        latest = last_[i];
        best = i;
      }
    }
    if (best == heap_index) {
      push_heap_entry(added);
      return;
    }
    ++size_;
    last_[best] = time;
    run_[best].push_back(added);
    if (run_[best].size() == 1) first_[best] = {time, added.order};
  }

  /// Puts a popped item back into the queue with the time `until`. Items that were deferred to the
  /// same time are popped in the order in which they were deferred. They are popped before all
  /// items that were pushed with this time.
  void defer(ticks until, const Item& item) { push_heap_entry({until, ++deferred_, item}); }

  /// Returns the time of the first entry. The queue must not be empty.
  ticks next_time() const { return first_[next()].time; }

  entry pop() {
    const int index = next();
    --size_;
    popped_ = index;
    if (index == heap_index) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const entry result = heap_.back();
      heap_.pop_back();
      first_[index] =
          heap_.empty() ? no_position : position{heap_.front().time, heap_.front().order};
      return result;
    }
    ring_buffer& run = run_[index];
    const entry result = run.front();
    run.pop_front();
    if (run.size() == 0) {
      first_[index] = no_position;
      last_[index] = 0;
    } else {
      first_[index] = {run.front().time, run.front().order};
    }
    return result;
  }

  /// Returns the item that will probably be popped after `ahead` other items. Assumes that all
  /// these items come from the run of the last popped item. Returns null if the last popped item
  /// came from the heap, or if its run is too short.
  const Item* peek(std::size_t ahead) const {
    if (popped_ == heap_index || ahead >= run_[popped_].size()) return nullptr;
    return &run_[popped_][ahead].item;
  }

 private:
  static constexpr int runs = 4;
  static constexpr int heap_index = runs;

  struct position {
    ticks time;
    std::uint64_t order;
    bool before(const position& other) const {
      return time != other.time ? time < other.time : order < other.order;
    }
  };
  static constexpr position no_position{no_time, UINT64_MAX};

  int next() const {
    int best = 0;
    for (int i = 1; i <= runs; ++i) best = first_[i].before(first_[best]) ? i : best;
    return best;
  }
  void push_heap_entry(const entry& added) {
    ++size_;
    heap_.push_back(added);
    std::push_heap(heap_.begin(), heap_.end(), later);
    first_[heap_index] = {heap_.front().time, heap_.front().order};
  }
  static bool later(const entry& a, const entry& b) {
    return a.time != b.time ? a.time > b.time : a.order > b.order;
  }

  /// A FIFO queue in a circular buffer. `push_back` enlarges the buffer if it is full.
  class ring_buffer {
   public:
    std::size_t size() const { return end_ - begin_; }
    const entry& front() const { return slots_[begin_ & mask_]; }
    const entry& operator[](std::size_t i) const { return slots_[(begin_ + i) & mask_]; }
    void push_back(const entry& added) {
      if (size() == slots_.size()) grow();
      slots_[end_++ & mask_] = added;
    }
    void pop_front() { ++begin_; }

   private:
    void grow() {
      std::vector<entry> larger(std::max<std::size_t>(64, 2 * slots_.size()));
      const std::size_t count = size();
      for (std::size_t i = 0; i < count; ++i) larger[i] = (*this)[i];
      slots_.swap(larger);
      mask_ = slots_.size() - 1;
      begin_ = 0;
      end_ = count;
    }

    std::vector<entry> slots_;
    std::size_t mask_ = 0;
    std::size_t begin_ = 0;
    std::size_t end_ = 0;
  };

  position first_[runs + 1] = {no_position, no_position, no_position, no_position,
                               no_position};  // the first entry of each run and of the heap
  ticks last_[runs] = {};                     // the last time of each run, or 0 if the run is empty
  ring_buffer run_[runs];
  std::vector<entry> heap_;
  std::uint64_t pushed_ = std::uint64_t{1} << 63;
  std::uint64_t deferred_ = 0;
  std::size_t size_ = 0;
  int popped_ = heap_index;
};

}  // namespace colls::simulated
