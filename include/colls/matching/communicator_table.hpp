// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// roster: the communicators of a rank by their ids: those it is in, those it has left, and ids that
// are taken for others to come.

#include <colls/matching/operation_record.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace colls {

/// An id is never used again, so that what comes late for one that was left can be answered.
class roster {
 public:
  /// What is remembered of one that this rank has left.
  struct left {
    std::uint32_t id;
    std::uint64_t next_sequence;
    std::shared_ptr<const failure> why;  // if it had failed
  };

  roster() = default;
  roster(const roster&) = delete;
  roster& operator=(const roster&) = delete;

  void add(communicator_state& communicator) {
    // Who leaves may have none.
    const std::size_t most = left_.size() + all_.size() + 1;
    if (left_.capacity() < most) left_.reserve(2 * most);
    all_.push_back(&communicator);
  }
  void remove(communicator_state& communicator) noexcept {
    if (std::erase(all_, &communicator) == 0) return;
    const auto at = left_.insert(not_below(communicator.id()),
                                 {communicator.id(), communicator.next_sequence(), nullptr});
    if (!communicator.failed()) return;
    try {
      at->why = std::make_shared<const failure>(communicator.why());
    } catch (const std::bad_alloc&) {
      // Who asks for it is told that it was closed.
    }
  }

  const std::vector<communicator_state*>& all() const { return all_; }
  communicator_state* find(std::uint32_t id) const {
    for (communicator_state* known : all_) {
      if (known->id() == id) return known;
    }
    return nullptr;
  }
  /// Null: this rank has not left one of that id.
  const left* find_left(std::uint32_t id) const {
    const auto at = not_below(id);
    return at != left_.end() && at->id == id ? &*at : nullptr;
  }

  /// Holds `count` ids for a communicator that is being made; false if one was ever in use here.
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    const auto among = [&](std::uint32_t id) { return id - first < count; };
    for (const communicator_state* known : all_) {
      if (among(known->id())) return false;
    }
    if (const auto gone = not_below(first); gone != left_.end() && among(gone->id)) return false;
    for (const held& other : held_) {
      if (among(other.first) || first - other.first < other.count) return false;
    }
    held_.push_back({first, count, nullptr});
    return true;
  }
  void free_ids(std::uint32_t first) {
    for (const held& range : held_) {
      if (range.first == first) forget_failures(range);
    }
    std::erase_if(held_, [&](const held& range) { return range.first == first; });
  }
  /// No communicator is made of them here, for that reason; how many there are.
  std::uint32_t abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& why) {
    for (held& range : held_) {
      if (range.first != first) continue;
      range.why = why;
      forget_failures(range);
      return range.count;
    }
    return 0;
  }
  /// Why one of that id was not made here, or null.
  const failure* find_abandoned(std::uint32_t id) const {
    for (const held& range : held_) {
      if (id - range.first < range.count) return range.why.get();
    }
    return nullptr;
  }

  /// A rank has died: it is in communicators that are still being made here, too.
  void note_death(int rank, const failure& why) noexcept {
    const auto is_it = [&](const death& known) { return known.rank == rank; };
    if (std::any_of(deaths_.begin(), deaths_.end(), is_it)) return;
    try {
      deaths_.push_back({rank, why});
    } catch (const std::bad_alloc&) {
      // Who needs it then is told that it has left.
    }
  }
  /// How a rank of that communicator has died, or null.
  const failure* death_in(const communicator_state& communicator) const {
    for (const death& known : deaths_) {
      if (communicator.rank_of(known.rank) >= 0) return &known.why;
    }
    return nullptr;
  }

  /// A peer says why a communicator has failed. Kept if that is still being made here: the store
  /// tells of others, too. The first report counts.
  void expect_failure(std::uint32_t id, const failure& why) {
    const auto is_it = [&](const failure& known) { return known.communicator == id; };
    if (!is_to_come(id) || std::any_of(expected_.begin(), expected_.end(), is_it)) return;
    expected_.push_back(why);
    expected_.back().communicator = id;
  }
  /// Why it has failed already, if it has.
  std::optional<failure> take_failure(std::uint32_t id) {
    std::optional<failure> found;
    std::erase_if(expected_, [&](const failure& why) {
      if (why.communicator != id) return false;
      found = why;
      return true;
    });
    return found;
  }

 private:
  struct held {
    std::uint32_t first;
    std::uint32_t count;
    std::shared_ptr<const failure> why;  // set: it is not made here
  };
  struct death {
    int rank;
    failure why;
  };

  bool is_to_come(std::uint32_t id) const {
    if (id == 0) return find_left(0) == nullptr;  // the world, whose links are there before it
    return std::any_of(held_.begin(), held_.end(), [=](const held& range) {
      return range.why == nullptr && id - range.first < range.count;
    });
  }
  void forget_failures(const held& range) {
    std::erase_if(expected_,
                  [&](const failure& why) { return why.communicator - range.first < range.count; });
  }

  std::vector<left>::const_iterator not_below(std::uint32_t id) const {
    const auto is_below = [](const left& gone, std::uint32_t wanted) { return gone.id < wanted; };
    return std::lower_bound(left_.begin(), left_.end(), id, is_below);
  }

  std::vector<communicator_state*> all_;
  std::vector<left> left_;  // by id
  std::vector<held> held_;
  std::vector<failure> expected_;
  std::vector<death> deaths_;
};

}  // namespace colls
