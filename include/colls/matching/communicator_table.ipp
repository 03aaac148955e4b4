// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator_table.ipp: the functions of communicator_table that run when a communicator is made,
// left or fails.

#include <colls/base/compiler.hpp>
#include <colls/matching/communicator_table.hpp>

#include <algorithm>
#include <new>

namespace colls {

COLLS_ONCE void communicator_table::add(communicator_state& communicator) {
  // `remove` must not allocate memory, so `add` reserves room for the `departed` record.
  const std::size_t needed = departed_.size() + all_.size() + 1;
  if (departed_.capacity() < needed) departed_.reserve(2 * needed);
  all_.push_back(&communicator);
}

COLLS_ONCE void communicator_table::remove(communicator_state& communicator) noexcept {
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

COLLS_ONCE const communicator_table::departed* communicator_table::find_departed(
    std::uint32_t id) const {
  const auto entry = first_not_below(id);
  return entry != departed_.end() && entry->id == id ? &*entry : nullptr;
}

COLLS_ONCE bool communicator_table::hold_ids(std::uint32_t first, std::uint32_t count) {
  const auto in_range = [&](std::uint32_t id) { return id - first < count; };
  for (const communicator_state* known : all_) {
    if (in_range(known->id())) return false;
  }
  if (const auto entry = first_not_below(first); entry != departed_.end() && in_range(entry->id)) {
    return false;
  }
  for (const held_range& other : held_) {
    if (in_range(other.first) || first - other.first < other.count) return false;
  }
  held_.push_back({first, count, nullptr});
  return true;
}

COLLS_ONCE void communicator_table::free_ids(std::uint32_t first) {
  for (const held_range& range : held_) {
    if (range.first == first) drop_early_failures(range);
  }
  std::erase_if(held_, [&](const held_range& range) { return range.first == first; });
}

COLLS_ONCE std::uint32_t communicator_table::abandon_ids(
    std::uint32_t first, const std::shared_ptr<const failure>& reason) {
  for (held_range& range : held_) {
    if (range.first != first) continue;
    range.reason = reason;
    drop_early_failures(range);
    return range.count;
  }
  return 0;
}

COLLS_ONCE const failure* communicator_table::find_abandoned(std::uint32_t id) const {
  for (const held_range& range : held_) {
    if (id - range.first < range.count) return range.reason.get();
  }
  return nullptr;
}

COLLS_ONCE void communicator_table::note_death(int rank, const failure& reason,
                                               bool is_first_hand) noexcept {
  for (death& known : deaths_) {
    if (known.rank != rank) continue;
    known.is_first_hand |= is_first_hand;
    if (reason.proved && !known.reason.proved) known.reason = reason;
    return;
  }
  try {
    deaths_.push_back({rank, reason, is_first_hand});
  } catch (const std::bad_alloc&) {
    // The allocation has failed, so the death is not recorded. An operation that needs the dead
    // rank will fail with an error that says that the dead rank has left the world.
  }
}

COLLS_ONCE const failure* communicator_table::death_in(
    const communicator_state& communicator) const {
  for (const death& known : deaths_) {
    if (communicator.rank_of(known.rank) >= 0) return &known.reason;
  }
  return nullptr;
}

COLLS_ONCE void communicator_table::store_early_failure(std::uint32_t id, const failure& reason) {
  const auto is_same = [&](const failure& known) { return known.communicator == id; };
  if (!is_to_come(id)) return;
  if (std::any_of(early_failures_.begin(), early_failures_.end(), is_same)) return;
  early_failures_.push_back(reason);
  early_failures_.back().communicator = id;
}

COLLS_ONCE std::optional<failure> communicator_table::take_early_failure(std::uint32_t id) {
  std::optional<failure> result;
  std::erase_if(early_failures_, [&](const failure& known) {
    if (known.communicator != id) return false;
    result = known;
    return true;
  });
  return result;
}

COLLS_ONCE bool communicator_table::is_to_come(std::uint32_t id) const {
  // Id 0 belongs to the world communicator and is never reserved. A peer can report that the
  // world has failed before this rank has added the world to the table.
  if (id == 0) return find_departed(0) == nullptr;
  return std::any_of(held_.begin(), held_.end(), [=](const held_range& range) {
    return range.reason == nullptr && id - range.first < range.count;
  });
}

COLLS_ONCE void communicator_table::drop_early_failures(const held_range& range) {
  std::erase_if(early_failures_, [&](const failure& known) {
    return known.communicator - range.first < range.count;
  });
}

COLLS_ONCE std::vector<communicator_table::departed>::const_iterator
communicator_table::first_not_below(std::uint32_t id) const {
  const auto is_below = [](const departed& entry, std::uint32_t bound) { return entry.id < bound; };
  return std::lower_bound(departed_.begin(), departed_.end(), id, is_below);
}

}  // namespace colls
