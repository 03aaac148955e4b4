// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// in_flight: lists the operations of a rank that have begun and not completed, and finds those that
// have waited too long.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace colls {

/// The list of the operations in flight, in the order in which they began. `sweep` checks the
/// deadlines of these operations. The matcher calls `sweep` at regular intervals, not for every
/// message. A sweep visits only the operations whose next check is due, so it is cheap even if many
/// operations are in flight.
class in_flight {
 public:
  /// The action that the matcher must take after a sweep has checked an operation.
  enum class due_action : std::uint8_t {
    nothing,
    total_timeout,       // `options.timeout` has expired
    inactivity_timeout,  // no bytes have moved for the communicator's inactivity timeout
    announce,            // tell the awaited ranks that the operation waits for them
    report_late,         // write the names of the late ranks to the log
  };

  in_flight() = default;
  in_flight(const in_flight&) = delete;
  in_flight& operator=(const in_flight&) = delete;

  bool empty() const { return all_.empty(); }
  /// Returns the oldest operation, or null if there is none.
  operation_record* first() const { return all_.front(); }
  /// Returns the next younger operation, or null if there is none.
  static operation_record* next(const operation_record& record) { return list::next(record); }

  [[gnu::always_inline]] void add(operation_record& record) {
    all_.push_back(record);
    record.start_order = ++start_count_;
    record.communicator->live_list(record).push_back(record);
    if (unseen_ == nullptr) unseen_ = &record;
  }
  void remove(operation_record& record) {
    if (unseen_ == &record) unseen_ = next(record);
    if (record.heap_index != 0) remove_from_heap(record);
    all_.remove(record);
    record.communicator->live_list(record).remove(record);
  }
  /// Makes the next sweep check the operation, even if its next check is not due yet.
  void check_soon(operation_record& record) {
    record.next_check = 0;
    if (record.heap_index != 0) sift_up(record);
  }

  /// Sets the time of the operation's next check. Sweeps before `time` skip the operation, even if
  /// one of its deadlines has expired.
  void check_at(operation_record& record, time_point time) {
    record.next_check = time;
    if (record.heap_index == 0) return;
    sift_up(record);
    sift_down(record);
  }

  /// Checks each operation whose next check is due. Records whether the operation has made progress
  /// since its previous check. If an action is due, calls `act(record, action)`.
  template <class Act>
  void sweep(time_point now, Act act) {
    for (; unseen_ != nullptr && make_room(); unseen_ = next(*unseen_)) {
      if (unseen_->started == never) unseen_->started = now;
      unseen_->next_check = now;
      heap_.push_back(unseen_);
      unseen_->heap_index = heap_.size();
      sift_up(*unseen_);
    }
    while (!heap_.empty() && heap_.front()->next_check <= now) {
      operation_record& record = *heap_.front();
      ++check_count_;
      if (record.communicator->failed()) {
        remove_from_heap(record);  // the revocation completes the operation
        continue;
      }
      const due_action action = judge(record, now);
      record.next_check = next_check_time(record, now);
      sift_down(record);
      if (action != due_action::nothing) act(record, action);
    }
  }

  /// Returns the time of the earliest scheduled check, or `never` if no check is scheduled. A new
  /// operation has no scheduled check until the first sweep after its start.
  time_point due() const { return heap_.empty() ? never : heap_.front()->next_check; }

  /// Returns the number of checks that sweeps have made so far.
  std::uint64_t check_count() const { return check_count_; }

 private:
  using list = intrusive_list<operation_record, &operation_record::in_flight>;

  static constexpr time_point patience = 30 * seconds;
  // The number of checks of an operation during one inactivity timeout. A sweep notices progress
  // only when it checks the operation, so it can measure a time without progress that is too short
  // by about one eighth of the timeout.
  static constexpr time_point checks_per_timeout = 8;
  static constexpr time_point min_check_interval = milliseconds;

  static due_action judge(operation_record& record, time_point now) {
    if (record.bytes != record.bytes_seen || record.last_progress == 0) {
      record.bytes_seen = record.bytes;
      record.last_progress = now;
    }
    if (now >= record.deadline) return due_action::total_timeout;
    if (now - record.last_progress >= record.communicator->inactivity)
      return due_action::inactivity_timeout;
    if (record.last_progress == never)
      return due_action::nothing;  // the call still waits behind other calls
    if (now - record.started >= record.announce_after) {
      // One announcement is not enough: when the ranks that got it have entered the operation, the
      // operation may wait for other ranks. The next announcement is therefore scheduled here.
      const time_point age = now - record.started;
      record.announce_after = age + std::min(age, std::max(500 * milliseconds, age / 8));
      return due_action::announce;
    }
    if (!record.is_reported_late && now - record.started >= patience &&
        now - record.last_progress >= patience) {
      record.is_reported_late = true;
      return due_action::report_late;
    }
    return due_action::nothing;
  }
  static time_point next_check_time(const operation_record& record, time_point now) {
    const time_point idle = record.communicator->inactivity;
    time_point first = record.deadline;
    const auto note = [&](time_point begin, time_point span) {
      if (begin < never - span) first = std::min(first, begin + span);
    };
    note(record.last_progress, idle);
    if (record.last_progress != never) {
      note(now, std::max(idle / checks_per_timeout, min_check_interval));
      note(record.started, record.announce_after);
      if (!record.is_reported_late) note(std::max(record.last_progress, record.started), patience);
    }
    return std::max(first, now + 1);
  }

  // ---- a binary heap ordered by `next_check`; each record stores its index in the heap

  bool make_room() {
    try {
      // Most programs never have more than 64 operations in flight, so the vector usually allocates
      // memory only once.
      constexpr std::size_t initial = 64;
      if (heap_.size() == heap_.capacity()) heap_.reserve(std::max(initial, 2 * heap_.size()));
    } catch (const std::bad_alloc&) {
      return false;  // the next sweep tries again to allocate
    }
    return true;
  }
  void put(operation_record* record, std::size_t index) {
    heap_[index - 1] = record;
    record->heap_index = index;
  }
  void sift_up(operation_record& record) {
    std::size_t index = record.heap_index;
    for (; index > 1 && record.next_check < heap_[index / 2 - 1]->next_check; index /= 2) {
      put(heap_[index / 2 - 1], index);
    }
    put(&record, index);
  }
  void sift_down(operation_record& record) {
    std::size_t index = record.heap_index;
    for (std::size_t child = 2 * index; child <= heap_.size(); child = 2 * index) {
      if (child < heap_.size() && heap_[child]->next_check < heap_[child - 1]->next_check) ++child;
      if (record.next_check <= heap_[child - 1]->next_check) break;
      put(heap_[child - 1], index);
      index = child;
    }
    put(&record, index);
  }
  void remove_from_heap(operation_record& record) {
    const std::size_t index = std::exchange(record.heap_index, 0);
    operation_record* const last = heap_.back();
    heap_.pop_back();
    if (last == &record) return;
    put(last, index);
    sift_down(*last);
    sift_up(*last);
  }

  list all_;
  operation_record* unseen_ = nullptr;  // the oldest operation that no sweep has seen
  std::vector<operation_record*> heap_;
  std::uint64_t check_count_ = 0;
  std::uint64_t start_count_ = 0;
};

}  // namespace colls
