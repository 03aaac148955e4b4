// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator_table: finds the communicators of one rank by their ids. The table holds the
// communicators in use, those that this rank has left, and the ids that this rank has reserved for
// communicators still being created.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <memory>
#include <optional>
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

  void add(communicator_state& communicator);
  void remove(communicator_state& communicator) noexcept;

  const std::vector<communicator_state*>& all() const { return all_; }
  communicator_state* find(std::uint32_t id) const {
    for (communicator_state* known : all_) {
      if (known->id() == id) return known;
    }
    return nullptr;
  }
  /// Returns the `departed` record of the communicator `id`, or null if this rank has not left a
  /// communicator with this id.
  const departed* find_departed(std::uint32_t id) const;

  /// Reserves the ids from `first` to `first + count - 1` for a communicator that is being created.
  /// Returns false if one of these ids is reserved or in use on this rank, or was in use before.
  bool hold_ids(std::uint32_t first, std::uint32_t count);
  void free_ids(std::uint32_t first);
  /// Records that this rank has failed to create a communicator. `first` is the first of the ids
  /// that this rank has reserved for the communicator, and `reason` describes the failure. The ids
  /// stay reserved. Returns the number of these ids, or 0 if no reserved range begins with `first`.
  std::uint32_t abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& reason);
  /// Returns the reason that `abandon_ids` has recorded for the communicator `id`, or null if it
  /// has recorded no reason.
  const failure* find_abandoned(std::uint32_t id) const;

  /// Records that the world rank `rank` has died. `is_first_hand` tells whether this rank has found
  /// that. `death_in` then reports the death for every
  /// communicator that contains the rank, even if the communicator is created after the death.
  void note_death(int rank, const failure& reason, bool is_first_hand) noexcept;
  bool is_proved_dead(int rank) const {
    return std::any_of(deaths_.begin(), deaths_.end(), [=](const death& known) {
      return known.rank == rank && known.reason.proved;
    });
  }
  /// Forgets that others suspect `rank`.
  void forget_suspicion(int rank) noexcept {
    std::erase_if(deaths_, [=](const death& known) {
      return known.rank == rank && !known.reason.proved && !known.is_first_hand;
    });
  }
  /// Returns the failure that describes the death of a member of the communicator, or null if no
  /// member has died.
  const failure* death_in(const communicator_state& communicator) const;
  /// Calls `visit(rank, reason)` for each world rank that has died.
  template <class Visit>
  void for_each_death(const Visit& visit) const {
    for (const death& known : deaths_) visit(known.rank, known.reason);
  }

  /// Called when a peer or the key-value store has reported that the communicator `id` has failed.
  /// If this rank is still creating the communicator, stores the first such report. Ignores all
  /// other reports, such as those about communicators to which this rank does not belong. The
  /// key-value store reports the failures of all communicators to every rank.
  void store_early_failure(std::uint32_t id, const failure& reason);
  /// Removes and returns the failure of the communicator `id` that was reported before the
  /// communicator was created. Returns an empty optional if there is none.
  std::optional<failure> take_early_failure(std::uint32_t id);
  /// Returns whether this rank is creating the communicator `id`.
  bool is_to_come(std::uint32_t id) const;

 private:
  struct held_range {
    std::uint32_t first;
    std::uint32_t count;
    std::shared_ptr<const failure> reason;  // not null if the creation was abandoned
  };
  struct death {
    int rank;
    failure reason;
    bool is_first_hand;  // this rank has found it
  };

  void drop_early_failures(const held_range& range);

  std::vector<departed>::const_iterator first_not_below(std::uint32_t id) const;

  std::vector<communicator_state*> all_;
  std::vector<departed> departed_;  // sorted by id
  std::vector<held_range> held_;
  std::vector<failure> early_failures_;
  std::vector<death> deaths_;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/communicator_table.ipp>
#endif
