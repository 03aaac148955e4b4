// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator_table: finds the communicators of one rank by their ids. The table holds the
// communicators in use, those that this rank has left, and the ids that this rank has reserved for
// communicators still being created.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace colls {

/// The table in which one rank finds its communicators by their ids. Ids are never reused, so this
/// rank can answer a late message for a communicator that it has left.
class communicator_table {
 public:
  /// The record of a communicator that this rank has left.
  struct departed {
    std::uint32_t id;
    std::uint64_t next_sequence;
    std::shared_ptr<const failure> reason;  // null if the communicator had not failed
  };

  communicator_table() = default;
  communicator_table(const communicator_table&) = delete;
  communicator_table& operator=(const communicator_table&) = delete;

  void add(communicator_state& communicator) {
    // `remove` must not allocate memory, so `add` reserves room for the `departed` record.
    const std::size_t needed = departed_.size() + all_.size() + 1;
    if (departed_.capacity() < needed) departed_.reserve(2 * needed);
    all_.push_back(&communicator);
  }
  void remove(communicator_state& communicator) noexcept {
    if (std::erase(all_, &communicator) == 0) return;
    const auto entry = departed_.insert(first_not_below(communicator.id()),
                                        {communicator.id(), communicator.next_sequence(), nullptr});
    if (!communicator.failed()) return;
    try {
      entry->reason = std::make_shared<const failure>(communicator.reason());
    } catch (const std::bad_alloc&) {
      // The allocation has failed, so `reason` stays null. If a peer still sends a message for the
      // communicator, this rank can answer only that it has closed the communicator.
    }
  }

  const std::vector<communicator_state*>& all() const { return all_; }
  communicator_state* find(std::uint32_t id) const {
    for (communicator_state* known : all_) {
      if (known->id() == id) return known;
    }
    return nullptr;
  }
  /// Returns the `departed` record of the communicator `id`, or null if this rank has not left a
  /// communicator with this id.
  const departed* find_departed(std::uint32_t id) const {
    const auto entry = first_not_below(id);
    return entry != departed_.end() && entry->id == id ? &*entry : nullptr;
  }

  /// Reserves the ids from `first` to `first + count - 1` for a communicator that is being created.
  /// Returns false if one of these ids is reserved or in use on this rank, or was in use before.
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    const auto in_range = [&](std::uint32_t id) { return id - first < count; };
    for (const communicator_state* known : all_) {
      if (in_range(known->id())) return false;
    }
    if (const auto entry = first_not_below(first);
        entry != departed_.end() && in_range(entry->id)) {
      return false;
    }
    for (const held_range& other : held_) {
      if (in_range(other.first) || first - other.first < other.count) return false;
    }
    held_.push_back({first, count, nullptr});
    return true;
  }
  void free_ids(std::uint32_t first) {
    for (const held_range& range : held_) {
      if (range.first == first) drop_early_failures(range);
    }
    std::erase_if(held_, [&](const held_range& range) { return range.first == first; });
  }
  /// Records that this rank has failed to create a communicator. `first` is the first of the ids
  /// that this rank has reserved for the communicator, and `reason` describes the failure. The ids
  /// stay reserved. Returns the number of these ids, or 0 if no reserved range begins with `first`.
  std::uint32_t abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& reason) {
    for (held_range& range : held_) {
      if (range.first != first) continue;
      range.reason = reason;
      drop_early_failures(range);
      return range.count;
    }
    return 0;
  }
  /// Returns the reason that `abandon_ids` has recorded for the communicator `id`, or null if it
  /// has recorded no reason.
  const failure* find_abandoned(std::uint32_t id) const {
    for (const held_range& range : held_) {
      if (id - range.first < range.count) return range.reason.get();
    }
    return nullptr;
  }

  /// Records that the world rank `rank` has died. `death_in` then reports the death for every
  /// communicator that contains the rank, even if the communicator is created after the death.
  void note_death(int rank, const failure& reason) noexcept {
    const auto is_same = [&](const death& known) { return known.rank == rank; };
    if (std::any_of(deaths_.begin(), deaths_.end(), is_same)) return;
    try {
      deaths_.push_back({rank, reason});
    } catch (const std::bad_alloc&) {
      // The allocation has failed, so the death is not recorded. An operation that needs the dead
      // rank will fail with an error that says that the dead rank has left the world.
    }
  }
  /// Returns the failure that describes the death of a member of the communicator, or null if no
  /// member has died.
  const failure* death_in(const communicator_state& communicator) const {
    for (const death& known : deaths_) {
      if (communicator.rank_of(known.rank) >= 0) return &known.reason;
    }
    return nullptr;
  }

  /// Called when a peer or the key-value store has reported that the communicator `id` has failed.
  /// If this rank is still creating the communicator, stores the first such report. Ignores all
  /// other reports, such as those about communicators to which this rank does not belong. The
  /// key-value store reports the failures of all communicators to every rank.
  void store_early_failure(std::uint32_t id, const failure& reason) {
    const auto is_same = [&](const failure& known) { return known.communicator == id; };
    if (!is_to_come(id)) return;
    if (std::any_of(early_failures_.begin(), early_failures_.end(), is_same)) return;
    early_failures_.push_back(reason);
    early_failures_.back().communicator = id;
  }
  /// Removes and returns the failure of the communicator `id` that was reported before the
  /// communicator was created. Returns an empty optional if there is none.
  std::optional<failure> take_early_failure(std::uint32_t id) {
    std::optional<failure> result;
    std::erase_if(early_failures_, [&](const failure& known) {
      if (known.communicator != id) return false;
      result = known;
      return true;
    });
    return result;
  }

 private:
  struct held_range {
    std::uint32_t first;
    std::uint32_t count;
    std::shared_ptr<const failure> reason;  // not null if the creation was abandoned
  };
  struct death {
    int rank;
    failure reason;
  };

  bool is_to_come(std::uint32_t id) const {
    // Id 0 belongs to the world communicator and is never reserved. A peer can report that the
    // world has failed before this rank has added the world to the table.
    if (id == 0) return find_departed(0) == nullptr;
    return std::any_of(held_.begin(), held_.end(), [=](const held_range& range) {
      return range.reason == nullptr && id - range.first < range.count;
    });
  }
  void drop_early_failures(const held_range& range) {
    std::erase_if(early_failures_, [&](const failure& known) {
      return known.communicator - range.first < range.count;
    });
  }

  std::vector<departed>::const_iterator first_not_below(std::uint32_t id) const {
    const auto is_below = [](const departed& entry, std::uint32_t bound) {
      return entry.id < bound;
    };
    return std::lower_bound(departed_.begin(), departed_.end(), id, is_below);
  }

  std::vector<communicator_state*> all_;
  std::vector<departed> departed_;  // sorted by id
  std::vector<held_range> held_;
  std::vector<failure> early_failures_;
  std::vector<death> deaths_;
};

}  // namespace colls
