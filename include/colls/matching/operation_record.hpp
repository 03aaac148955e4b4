// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// operation_record: an operation in flight, and communicator_state: a communicator as its rank sees
// it.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>
#include <colls/base/fingerprint.hpp>
#include <colls/base/node_map.hpp>
#include <colls/base/reported_failure.hpp>
#include <colls/coroutine/completion.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace colls {

struct posted_receive;

/// An operation in flight: the identity that each of its messages carries, its deadline and its
/// progress. The lane belongs to a message's key, not to the operation.
struct operation_record {
  communicator_state* communicator = nullptr;
  std::uint64_t sequence = 0;  // of a collective; the tag of a point-to-point operation
  std::uint64_t hash = 0;      // of the fingerprint; 0: point to point
  collective operation = collective::none;
  algorithm pinned = algorithm::automatic;  // by the caller
  order reduction_order = order::any;       // that the caller asks for
  time_point started = 0;                   // `never`: the next sweep sets it, to save a clock read
  time_point deadline = never;              // total; the inactivity timeout is the communicator's
  time_point last_progress = 0;      // when a sweep last saw `bytes` change; `never`: still queued
  std::uint64_t bytes = 0;           // sent and received so far
  std::uint64_t bytes_in_place = 0;  // of `bytes`: accessed in shared memory, or messages about it
  std::uint64_t bytes_seen = 0;      // at the last sweep
  std::uint64_t bytes_expected = 0;
  std::uint64_t segment = 0;                       // bytes; 0: chunks are not cut
  int lanes = 1;                                   // segments in flight
  int radix = 4;                                   // of the algorithms that have one
  time_point announce_after = 100 * milliseconds;  // after `started`
  stream_ref stream;                               // the caller's, whose work comes first
  bool is_reported_late = false;                   // the log names the ranks that it waits for
  posted_receive* receive = nullptr;  // point to point: the receive that waits for its message
  std::int32_t destination = -1;      // point to point: rank in the world
  time_point next_check = 0;          // by a sweep
  std::size_t heap_index = 0;         // in the heap of `in_flight`, from 1; 0: not in it
  /// If set, a deadline calls this instead of revoking the communicator (point to point).
  void (*expired)(operation_record& self, const failure& reason) = nullptr;

  operation_record* next = nullptr;  // in the matcher's list of operations in flight
  operation_record* prev = nullptr;
  operation_record* next_of_kind = nullptr;  // in its communicator's list of the same kind
  operation_record* prev_of_kind = nullptr;
  std::uint64_t start_order = 0;  // counts the operations that the matcher has seen
};

/// Operations of a communicator in flight, in the order in which they began.
struct live_records {
  operation_record* first = nullptr;
  operation_record* last = nullptr;

  void push_back(operation_record& record) {
    record.next_of_kind = nullptr;
    record.prev_of_kind = last;
    (last != nullptr ? last->next_of_kind : first) = &record;
    last = &record;
  }
  void remove(operation_record& record) {
    (record.prev_of_kind != nullptr ? record.prev_of_kind->next_of_kind : first) =
        record.next_of_kind;
    (record.next_of_kind != nullptr ? record.next_of_kind->prev_of_kind : last) =
        record.prev_of_kind;
    record.next_of_kind = record.prev_of_kind = nullptr;
  }
};

/// A communicator as one rank sees it: its members, its last calls, and why it failed.
class communicator_state {
 public:
  communicator_state(std::uint32_t id, int rank, int size,
                     std::shared_ptr<const std::vector<int>> members)
      : id_(id), rank_(rank), size_(size), members_(std::move(members)) {}

  std::uint32_t id() const { return id_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  int world_rank(int rank) const {
    return members_ == nullptr ? rank : (*members_)[static_cast<std::size_t>(rank)];
  }
  const std::shared_ptr<const std::vector<int>>& members() const { return members_; }

  /// Rank in this communicator of a rank of the world, or -1.
  int rank_of(int world) const {
    if (members_ == nullptr) return world < size_ ? world : -1;
    for (int i = 0; i < size_; ++i) {
      if ((*members_)[static_cast<std::size_t>(i)] == world) return i;
    }
    return -1;
  }

  /// The map of ranks to hosts, built on first use. The transport's `host_of(rank)` takes a rank of
  /// the world.
  template <class HostOf>
  const node_map& nodes(const HostOf& host_of) {
    if (!nodes_) {
      nodes_.emplace(size_, [&](int rank) { return host_of(world_rank(rank)); });
    }
    return *nodes_;
  }

  bool failed() const { return reason_.code != errc{}; }
  const failure& reason() const { return reason_; }
  void fail(const reported_failure& report) { reason_ = report; }

  /// Sequence numbers start at 1. The fingerprints of the last calls are kept, so a message for an
  /// operation that has ended here can still be compared.
  std::uint64_t next_sequence() const { return sequence_ + 1; }
  std::uint64_t take_sequence(const fingerprint& call, std::uint64_t hash) {
    if (hash != last_hash_) begin_run(call, hash);
    return ++sequence_;
  }
  std::uint64_t take_sequence(const fingerprint& call) {
    return take_sequence(call, hash_of(call));
  }
  /// The call with that number if it is among the last ones, else null.
  const fingerprint* recall(std::uint64_t sequence) const {
    const run* const found = find(sequence);
    return found != nullptr ? &found->call : nullptr;
  }
  /// Whether a rank ends a call of this collective only after all ranks have entered it.
  static constexpr bool ends_after_all(collective operation) {
    switch (operation) {
      case collective::barrier:
      case collective::all_reduce:
      case collective::reduce_scatter:
      case collective::all_gather:
      case collective::all_to_all:
      case collective::split:
      case collective::group:
      case collective::dup:
        return true;
      default:
        return false;
    }
  }
  /// The newest remembered call before `sequence` that a rank ends only after all ranks have
  /// entered it, or 0.
  std::uint64_t entered_by_all(std::uint64_t sequence) const {
    while (--sequence > 0) {
      const fingerprint* const call = recall(sequence);
      if (call == nullptr) return 0;
      if (ends_after_all(call->operation)) return sequence;
    }
    return 0;
  }
  /// Whether that call is remembered and a rank ends it only after all ranks have entered it.
  bool ends_after_all(std::uint64_t sequence) const {
    const fingerprint* const call = recall(sequence);
    return call != nullptr && ends_after_all(call->operation);
  }
  /// Returns false if a message with this hash belongs to a call other than ours of that number.
  bool agrees(std::uint64_t sequence, std::uint64_t hash) const {
    const run* const found = find(sequence);
    return hash == 0 || found == nullptr || found->hash == hash;
  }

  /// The list of operations in flight of the record's kind: collective or point to point.
  live_records& live_list(const operation_record& record) {
    return record.hash != 0 ? collectives_ : direct_;
  }
  const operation_record* oldest_collective() const { return collectives_.first; }
  const operation_record* oldest_point_to_point() const { return direct_.first; }
  bool is_in_use() const { return collectives_.first != nullptr || direct_.first != nullptr; }

  time_point inactivity = 600 * seconds;
  bool closing = false;  // close() has begun: the death of a peer does not revoke it

 private:
  /// Consecutive calls with the same fingerprint. Storing them as one run keeps the working set of
  /// a call in the L1 cache; most programs have few runs.
  struct run {
    std::uint64_t first = 0;  // sequence number
    std::uint64_t hash = 0;
    fingerprint call;
  };
  static constexpr std::size_t kept = 64;  // calls, hence at most as many runs

  [[gnu::noinline]] void begin_run(const fingerprint& call, std::uint64_t hash) {
    const std::size_t slot = runs_ % kept;
    if (slot == recent_.size()) {
      // Starts with one run: most ranks of a simulation need no more.
      if (slot == recent_.capacity()) recent_.reserve(slot == 0 ? 1 : 8 * slot);
      recent_.emplace_back();
    }
    recent_[slot] = {sequence_ + 1, hash, call};
    last_hash_ = hash;
    ++runs_;
  }
  const run* find(std::uint64_t sequence) const {
    if (sequence == 0 || sequence > sequence_ || sequence + kept <= sequence_) return nullptr;
    std::size_t index = runs_ - 1;
    while (recent_[index % kept].first > sequence) --index;
    return &recent_[index % kept];
  }

  std::uint32_t id_;
  int rank_;
  int size_;
  std::shared_ptr<const std::vector<int>> members_;
  std::optional<node_map> nodes_;
  std::uint64_t sequence_ = 0;
  std::uint64_t last_hash_ = 0;  // of the newest run
  std::size_t runs_ = 0;
  std::vector<run> recent_;
  live_records collectives_;
  live_records direct_;
  failure reason_;  // has no code until the communicator fails
};

}  // namespace colls
