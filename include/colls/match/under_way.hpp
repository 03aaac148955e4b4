// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// under_way: the operations that have begun on a rank and not ended, and what time does to them.

#include <colls/record.hpp>

namespace colls {

/// In the order in which they began. Looked at a few times a second, never per message.
class under_way {
 public:
  /// What an operation has waited long enough for.
  enum class waited : std::uint8_t {
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
  }
  void remove(operation_record& record) {
    (record.prev != nullptr ? record.prev->next : first_) = record.next;
    (record.next != nullptr ? record.next->prev : last_) = record.prev;
    record.next = record.prev = nullptr;
  }

  /// Notes which have moved, and calls `act(record, waited)` for those whose time has come.
  template <class Act>
  void sweep(time_point now, Act act) {
    for (operation_record* record = first_; record != nullptr; record = record->next) {
      if (record->communicator->failed()) continue;
      if (record->started == never) record->started = now;
      if (record->bytes != record->bytes_seen || record->progressed == 0) {
        record->bytes_seen = record->bytes;
        record->progressed = now;
      }
      if (now >= record->deadline) {
        act(*record, waited::in_all);
      } else if (now - record->progressed >= record->communicator->inactivity) {
        act(*record, waited::idle);
      } else if (now - record->started >= record->announce_after) {
        // Again and again: it may wait for others by then, and they may have called meanwhile.
        record->announce_after = 2 * (now - record->started);
        act(*record, waited::unheard_of);
      } else if (!record->late && now - record->started >= patience &&
                 now - record->progressed >= patience) {
        record->late = true;
        act(*record, waited::late);
      }
    }
  }

  /// When `sweep` next has something to do if nothing moves until then, or `never`. Of operations
  /// that a sweep has seen.
  time_point due() const {
    time_point first = never;
    const auto note = [&](time_point from, time_point span) {
      if (from < never - span && from + span < first) first = from + span;
    };
    for (const operation_record* record = first_; record != nullptr; record = record->next) {
      if (record->communicator->failed() || record->started == never) continue;
      note(record->deadline, 0);
      note(record->progressed, record->communicator->inactivity);
      note(record->started, record->announce_after);
      if (record->late || record->progressed == never) continue;
      note(record->progressed > record->started ? record->progressed : record->started, patience);
    }
    return first;
  }

 private:
  static constexpr time_point patience = 30 * seconds;

  operation_record* first_ = nullptr;
  operation_record* last_ = nullptr;
};

}  // namespace colls
