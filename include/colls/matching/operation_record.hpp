// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a rank knows of its communicators and of the operations under way on them.

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

struct posted;

/// One operation under way: its identity in every message, its deadline, its progress. The lane
/// counts as part of a message's key, not of the operation.
struct operation_record {
  communicator_state* communicator = nullptr;
  std::uint64_t sequence = 0;  // of a collective; the tag of a point-to-point operation
  std::uint64_t hash = 0;      // of the fingerprint; 0: point to point
  collective what = collective::none;
  algorithm pinned = algorithm::automatic;  // by the caller
  order sum = order::any;                   // that the caller asks for
  time_point started = 0;        // never: the next sweep says when, the clock is not read for it
  time_point deadline = never;   // total; the inactivity deadline is the communicator's
  time_point progressed = 0;     // when a sweep last saw `bytes` change
  std::uint64_t bytes = 0;       // moved so far, sent and received
  std::uint64_t in_place = 0;    // of them, worked on where they lay, or words about that
  std::uint64_t bytes_seen = 0;  // at the last sweep
  std::uint64_t bytes_expected = 0;
  std::uint64_t segment = 0;                       // bytes; 0: chunks travel whole
  int lanes = 1;                                   // segments in flight
  int radix = 4;                                   // of the algorithms that have one
  time_point announce_after = 100 * milliseconds;  // from `started`
  stream_ref stream;                               // the caller's, whose work comes first
  bool late = false;                               // the log has told who is waited for
  posted* receive = nullptr;   // point to point: the one that waits for its message
  std::int32_t sends_to = -1;  // the same: a rank of the world
  time_point look_at = 0;      // when time may have done something to it
  std::size_t place = 0;       // among those that are looked at then, from 1; 0: it is not
  /// What a deadline does in place of revoking the communicator (point to point).
  void (*expired)(operation_record& self, const failure& why) = nullptr;

  operation_record* next = nullptr;  // in the match's list of live records
  operation_record* prev = nullptr;
  operation_record* next_alike = nullptr;  // in its communicator's list of those of its sort
  operation_record* prev_alike = nullptr;
  std::uint64_t begun = 0;  // in which order, among all that the match has seen
};

/// Operations of a communicator that are under way, in the order in which they began.
struct live_records {
  operation_record* first = nullptr;
  operation_record* last = nullptr;

  void push_back(operation_record& record) {
    record.next_alike = nullptr;
    record.prev_alike = last;
    (last != nullptr ? last->next_alike : first) = &record;
    last = &record;
  }
  void remove(operation_record& record) {
    (record.prev_alike != nullptr ? record.prev_alike->next_alike : first) = record.next_alike;
    (record.next_alike != nullptr ? record.next_alike->prev_alike : last) = record.prev_alike;
    record.next_alike = record.prev_alike = nullptr;
  }
};

/// A communicator as one rank sees it: who is in it, what was called on it last, why it failed.
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

  /// Rank here of a rank of the world, or -1.
  int rank_of(int world) const {
    if (members_ == nullptr) return world < size_ ? world : -1;
    for (int i = 0; i < size_; ++i) {
      if ((*members_)[static_cast<std::size_t>(i)] == world) return i;
    }
    return -1;
  }

  /// Made at the first question; `host_of(rank)` is the transport's word.
  template <class HostOf>
  const node_map& nodes(const HostOf& host_of) {
    if (!nodes_) {
      nodes_.emplace(size_, [&](int rank) { return host_of(world_rank(rank)); });
    }
    return *nodes_;
  }

  bool failed() const { return why_.code != errc{}; }
  const failure& why() const { return why_; }
  void fail(const reported_failure& why) { why_ = why; }

  /// Numbers start at 1; a call remembers its fingerprint, so that a message for an operation that
  /// is over here can still be compared.
  std::uint64_t next_sequence() const { return sequence_ + 1; }
  std::uint64_t take_sequence(const fingerprint& call, std::uint64_t hash) {
    if (hash != last_hash_) begin_run(call, hash);
    return ++sequence_;
  }
  std::uint64_t take_sequence(const fingerprint& call) {
    return take_sequence(call, hash_of(call));
  }
  /// The call with that number, if it is among the last ones.
  const fingerprint* recall(std::uint64_t sequence) const {
    const run* const found = find(sequence);
    return found != nullptr ? &found->call : nullptr;
  }
  /// Whether a rank ends such a call only after all have entered it.
  static constexpr bool ends_after_all(collective what) {
    switch (what) {
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
  /// The newest call before `sequence` that a rank ends only after all have entered it; 0: none is
  /// remembered.
  std::uint64_t entered_by_all(std::uint64_t sequence) const {
    while (--sequence > 0) {
      const fingerprint* const call = recall(sequence);
      if (call == nullptr) return 0;
      if (ends_after_all(call->what)) return sequence;
    }
    return 0;
  }
  /// Whether that call, if it is remembered, is one that a rank ends only after all have entered it.
  bool ends_after_all(std::uint64_t sequence) const {
    const fingerprint* const call = recall(sequence);
    return call != nullptr && ends_after_all(call->what);
  }
  /// False: that message belongs to another call than ours with the same number.
  bool agrees(std::uint64_t sequence, std::uint64_t hash) const {
    const run* const found = find(sequence);
    return hash == 0 || found == nullptr || found->hash == hash;
  }

  /// Those under way: collectives, and operations that are point to point.
  live_records& live_as(const operation_record& record) {
    return record.hash != 0 ? collectives_ : direct_;
  }
  const operation_record* oldest_collective() const { return collectives_.first; }
  const operation_record* oldest_direct() const { return direct_.first; }
  bool is_in_use() const { return collectives_.first != nullptr || direct_.first != nullptr; }

  time_point inactivity = 600 * seconds;
  bool closing = false;  // left by close(): peers may say what they like

 private:
  /// Calls that are alike, one after the other: most programs make few others, and to write each
  /// down would wash all that a call needs out of the first cache.
  struct run {
    std::uint64_t first = 0;  // number
    std::uint64_t hash = 0;
    fingerprint call;
  };
  static constexpr std::size_t kept = 64;  // calls, and so as many runs are enough

  [[gnu::noinline]] void begin_run(const fingerprint& call, std::uint64_t hash) {
    const std::size_t at = runs_ % kept;
    if (at == recent_.size()) {
      // A program's calls soon come again: no memory is taken then. Most ranks of a simulation make
      // one.
      if (at == recent_.capacity()) recent_.reserve(at == 0 ? 1 : 8 * at);
      recent_.emplace_back();
    }
    recent_[at] = {sequence_ + 1, hash, call};
    last_hash_ = hash;
    ++runs_;
  }
  const run* find(std::uint64_t sequence) const {
    if (sequence == 0 || sequence > sequence_ || sequence + kept <= sequence_) return nullptr;
    std::size_t at = runs_ - 1;
    while (recent_[at % kept].first > sequence) --at;
    return &recent_[at % kept];
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
  failure why_;  // without a code: it has not failed
};

}  // namespace colls
