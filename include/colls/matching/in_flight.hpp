// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// under_way: the operations that have begun on a rank and not ended, and what time does to them.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

namespace colls {

/// In the order in which they began. Looked at a few times a second, never per message: an operation
/// again when its time has come, so that a sweep takes no longer where many are under way.
class under_way {
 public:
  /// What an operation has waited long enough for.
  enum class waited : std::uint8_t {
    nothing,
    in_all,      // `options.timeout`
    idle,        // nothing has moved for the communicator's patience
    unheard_of,  // those it waits for shall learn what it is in
    late,        // for others, who may be told of in the log
  };

  under_way() = default;
  under_way(const under_way&) = delete;
  under_way& operator=(const under_way&) = delete;

  bool empty() const { return first_ == nullptr; }
  /// And by `next` the others.
  operation_record* first() const { return first_; }

  void add(operation_record& record) {
    record.next = nullptr;
    record.prev = last_;
    (last_ != nullptr ? last_->next : first_) = &record;
    last_ = &record;
    record.begun = ++begun_;
    record.communicator->live_as(record).push_back(record);
    if (unseen_ == nullptr) unseen_ = &record;
  }
  void remove(operation_record& record) {
    if (unseen_ == &record) unseen_ = record.next;
    if (record.place != 0) leave_queue(record);
    (record.prev != nullptr ? record.prev->next : first_) = record.next;
    (record.next != nullptr ? record.next->prev : last_) = record.prev;
    record.next = record.prev = nullptr;
    record.communicator->live_as(record).remove(record);
  }
  /// Its time counts anew: the next sweep looks at it.
  void look_soon(operation_record& record) {
    record.look_at = 0;
    if (record.place != 0) rise(record);
  }

  /// It is looked at then, whatever time would do to it before.
  void look_at(operation_record& record, time_point then) {
    record.look_at = then;
    if (record.place == 0) return;
    rise(record);
    sink(record);
  }

  /// Looks at those whose time may have come: notes which have moved, and calls
  /// `act(record, waited)` for those that have waited long enough.
  template <class Act>
  void sweep(time_point now, Act act) {
    for (; unseen_ != nullptr && make_room(); unseen_ = unseen_->next) {
      if (unseen_->started == never) unseen_->started = now;
      unseen_->look_at = now;
      queue_.push_back(unseen_);
      unseen_->place = queue_.size();
      rise(*unseen_);
    }
    while (!queue_.empty() && queue_.front()->look_at <= now) {
      operation_record& record = *queue_.front();
      ++looks_;
      if (record.communicator->failed()) {
        leave_queue(record);  // it ends
        continue;
      }
      const waited what = judge(record, now);
      record.look_at = next_look(record, now);
      sink(record);
      if (what != waited::nothing) act(record, what);
    }
  }

  /// When `sweep` next has something to do if nothing moves until then, or `never`. Of operations
  /// that a sweep has seen.
  time_point due() const { return queue_.empty() ? never : queue_.front()->look_at; }

  /// How many operations sweeps have looked at so far, one after the other.
  std::uint64_t looks() const { return looks_; }

 private:
  static constexpr time_point patience = 30 * seconds;
  // That something has moved is noted at a look.
  static constexpr time_point looks_in_patience = 8;
  static constexpr time_point shortest = milliseconds;

  static waited judge(operation_record& record, time_point now) {
    if (record.bytes != record.bytes_seen || record.progressed == 0) {
      record.bytes_seen = record.bytes;
      record.progressed = now;
    }
    if (now >= record.deadline) return waited::in_all;
    if (now - record.progressed >= record.communicator->inactivity) return waited::idle;
    if (record.progressed == never) return waited::nothing;  // its turn has not come
    if (now - record.started >= record.announce_after) {
      // Again and again: it may wait for others by then, and they may have called meanwhile.
      const time_point age = now - record.started;
      record.announce_after = age + std::min(age, std::max(500 * milliseconds, age / 8));
      return waited::unheard_of;
    }
    if (!record.late && now - record.started >= patience && now - record.progressed >= patience) {
      record.late = true;
      return waited::late;
    }
    return waited::nothing;
  }
  static time_point next_look(const operation_record& record, time_point now) {
    const time_point idle = record.communicator->inactivity;
    time_point first = record.deadline;
    const auto note = [&](time_point from, time_point span) {
      if (from < never - span) first = std::min(first, from + span);
    };
    note(record.progressed, idle);
    if (record.progressed != never) {
      note(now, std::max(idle / looks_in_patience, shortest));
      note(record.started, record.announce_after);
      if (!record.late) note(std::max(record.progressed, record.started), patience);
    }
    return std::max(first, now + 1);
  }

  // ---- a heap by `look_at`; each knows its place

  bool make_room() {
    try {
      // Most programs never have more under way, and the list grows no more.
      constexpr std::size_t few = 64;
      if (queue_.size() == queue_.capacity()) queue_.reserve(std::max(few, 2 * queue_.size()));
    } catch (const std::bad_alloc&) {
      return false;  // the next sweep tries again
    }
    return true;
  }
  void put(operation_record* record, std::size_t place) {
    queue_[place - 1] = record;
    record->place = place;
  }
  void rise(operation_record& record) {
    std::size_t at = record.place;
    for (; at > 1 && record.look_at < queue_[at / 2 - 1]->look_at; at /= 2) {
      put(queue_[at / 2 - 1], at);
    }
    put(&record, at);
  }
  void sink(operation_record& record) {
    std::size_t at = record.place;
    for (std::size_t below = 2 * at; below <= queue_.size(); below = 2 * at) {
      if (below < queue_.size() && queue_[below]->look_at < queue_[below - 1]->look_at) ++below;
      if (record.look_at <= queue_[below - 1]->look_at) break;
      put(queue_[below - 1], at);
      at = below;
    }
    put(&record, at);
  }
  void leave_queue(operation_record& record) {
    const std::size_t at = std::exchange(record.place, 0);
    operation_record* const last = queue_.back();
    queue_.pop_back();
    if (last == &record) return;
    put(last, at);
    sink(*last);
    rise(*last);
  }

  operation_record* first_ = nullptr;
  operation_record* last_ = nullptr;
  operation_record* unseen_ = nullptr;  // by a sweep; nor were those after it
  std::vector<operation_record*> queue_;
  std::uint64_t looks_ = 0;
  std::uint64_t begun_ = 0;
};

}  // namespace colls
