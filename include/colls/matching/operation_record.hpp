// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// operation_record: the state of an operation in flight. communicator_state: the state of a
// communicator on one of its ranks.
//
// The fingerprint of a call contains the arguments that must be equal on all ranks. Each message of
// a collective carries the hash of the fingerprint. While its driver runs, a rank regularly checks
// the deadlines of its operations in flight. Such a check is called a sweep. If an operation waits
// for another rank for a long time, the waiting rank sends an announcement, which is a message that
// tells the other rank about the operation.

#include <colls/base/intrusive_list.hpp>
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

/// An operation in flight: the identity that is sent with each of its messages, its deadline and
/// its progress. An operation may use several lanes (concurrent pieces), so the lane is part of a
/// message's key and not of this record.
struct operation_record {
  communicator_state* communicator = nullptr;
  std::uint64_t sequence = 0;  // a collective's sequence number or a point-to-point tag
  std::uint64_t hash = 0;      // the fingerprint's hash, or 0 if the operation is point to point
  collective operation = collective::none;
  algorithm pinned = algorithm::automatic;  // the algorithm that the caller pinned
  order reduction_order = order::any;       // the order that the caller asked for
  std::uint8_t op_number = 0;               // of a built-in reduction operation, or 0
  std::uint32_t accumulate_type = 0;        // the number of the accumulate type of a reduction
  time_point started = 0;                   // the start time; if `never`, the first sweep sets it
  time_point deadline = never;              // when the timeout of the whole operation expires
  time_point last_progress = 0;      // when a sweep last saw `bytes` change; `never` while queued
  std::uint64_t bytes = 0;           // bytes sent and received so far
  std::uint64_t bytes_in_place = 0;  // the part of `bytes` that does not count as copied
  std::uint64_t bytes_seen = 0;      // the value of `bytes` at the last sweep
  std::uint64_t bytes_expected = 0;
  std::uint64_t segment = 0;                       // a segment's size in bytes; 0 if no segments
  int lanes = 1;                                   // the number of segments in flight
  int radix = 4;                                   // the branching factor, if the algorithm has one
  time_point announce_after = 100 * milliseconds;  // from `started` to the next announcement
  stream_ref stream;                               // the CUDA stream of the operation, if any
  bool is_reported_late = false;                   // the log has named the late ranks
  bool is_native = false;                          // the algorithm is that of a library
  posted_receive* receive = nullptr;  // the receive of a point-to-point operation, if queued
  std::int32_t destination = -1;      // the world rank to which a point-to-point send goes
  time_point next_check = 0;          // the time of the next check by a sweep
  std::size_t heap_index = 0;         // the index in the heap of `in_flight`, or 0 if absent
  /// The function that the matcher calls when this operation has timed out. If the pointer is null,
  /// the matcher revokes the communicator instead. For a collective, the pointer is always null.
  void (*expired)(operation_record& self, const failure& reason) = nullptr;

  list_links<operation_record> in_flight;  // links of the list of the rank's operations
  list_links<operation_record> live;       // links of the list of `communicator_state::live_list`
  std::uint64_t start_order = 0;           // the position in the order in which operations began
};

/// Operations in flight of one communicator, in the order in which they began. A communicator has
/// one list for collectives and one for point-to-point operations.
using live_records = intrusive_list<operation_record, &operation_record::live>;

/// The state of a communicator on one rank: its members, its most recent calls, and, if it has
/// failed, the reason for the failure.
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

  /// Converts the world rank `member` to its rank in this communicator. Returns -1 if `member` does
  /// not belong to the communicator.
  int rank_of(int member) const {
    if (members_ == nullptr) return member < size_ ? member : -1;
    for (int i = 0; i < size_; ++i) {
      if ((*members_)[static_cast<std::size_t>(i)] == member) return i;
    }
    return -1;
  }

  /// Returns the map from the ranks of this communicator to their hosts. The first call builds the
  /// map. To do so, it calls `host_of` with the world rank of each member.
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

  /// Returns the sequence number that the next call will get. Sequence numbers start at 1.
  std::uint64_t next_sequence() const { return sequence_ + 1; }
  /// Assigns the next sequence number to a call with the fingerprint `call` and returns the number.
  /// The communicator remembers the fingerprints of its most recent calls, so that this rank can
  /// check a message of a call even after the call has completed on this rank.
  std::uint64_t take_sequence(const fingerprint& call, std::uint64_t hash) {
    if (hash != last_hash_) begin_run(call, hash);
    return ++sequence_;
  }
  std::uint64_t take_sequence(const fingerprint& call) {
    return take_sequence(call, hash_of(call));
  }
  /// Returns the fingerprint of the call with this sequence number, or null if the communicator
  /// does not remember this call.
  const fingerprint* recall(std::uint64_t sequence) const {
    const run* const found = find(sequence);
    return found != nullptr ? &found->call : nullptr;
  }
  /// Returns true if `operation` is a collective that no rank completes before all ranks have
  /// entered it.
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
  /// Searches the remembered calls that are older than the call with the number `sequence`. Returns
  /// the sequence number of the newest of them for which `ends_after_all` returns true. Returns 0
  /// if there is no such call.
  std::uint64_t entered_by_all(std::uint64_t sequence) const {
    while (--sequence > 0) {
      const fingerprint* const call = recall(sequence);
      if (call == nullptr) return 0;
      if (ends_after_all(call->operation)) return sequence;
    }
    return 0;
  }
  /// Returns true if the communicator remembers the call with this sequence number, and this call
  /// is a collective that no rank completes before all ranks have entered it.
  bool ends_after_all(std::uint64_t sequence) const {
    const fingerprint* const call = recall(sequence);
    return call != nullptr && ends_after_all(call->operation);
  }
  /// Compares `hash`, which was received in a message of the operation `sequence`, with the hash of
  /// this rank's call that has the same sequence number. Returns true if the hashes are equal, if
  /// `hash` is 0, or if this rank has not made the call yet or no longer remembers it.
  bool agrees(std::uint64_t sequence, std::uint64_t hash) const {
    const run* const found = find(sequence);
    return hash == 0 || found == nullptr || found->hash == hash;
  }

  /// Returns the list for operations of the same kind as `record`, that is, either the list of
  /// collectives or the list of point-to-point operations.
  live_records& live_list(const operation_record& record) {
    return record.hash != 0 ? collectives_ : direct_;
  }
  const operation_record* oldest_collective() const { return collectives_.front(); }
  const operation_record* oldest_point_to_point() const { return direct_.front(); }
  bool is_in_use() const { return !collectives_.empty() || !direct_.empty(); }

  time_point inactivity = 600 * seconds;
  bool closing = false;  // if true, the death of a peer does not revoke the communicator

 private:
  /// A run of consecutive calls with the same fingerprint. `recent_` has one entry for each run.
  /// Most programs have few runs, so the entries in use stay in the L1 cache.
  struct run {
    std::uint64_t first = 0;  // the sequence number of the first call
    std::uint64_t hash = 0;
    fingerprint call;
  };
  static constexpr std::size_t kept = 64;  // the most calls, and thus the most runs, to remember

  [[gnu::noinline]] void begin_run(const fingerprint& call, std::uint64_t hash) {
    const std::size_t slot = runs_ % kept;
    if (slot == recent_.size()) {
      // A simulation can have many ranks, most of which need only one entry in `recent_`. To save
      // memory, the first allocation of `recent_` has room for one entry.
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
  std::uint64_t last_hash_ = 0;  // the hash of the newest run
  std::size_t runs_ = 0;
  std::vector<run> recent_;
  live_records collectives_;
  live_records direct_;
  failure reason_;  // has no error code until the communicator fails
};

}  // namespace colls
