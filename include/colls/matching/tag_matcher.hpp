// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tag_matcher: matches messages with posted receives. All transports of one rank on one executor
// share a matcher. The matcher also detects mismatched calls, expired deadlines and late ranks.
//
// The fingerprint of a call contains the arguments that must be equal on all ranks. If two ranks
// have made different calls under the same sequence number, one of them sends its fingerprint to
// the other, which compares the two; this is called a dispute. A rank that has waited for a long
// time in an operation sends announcements, which tell other ranks about the operation.

#include <colls/base/log.hpp>
#include <colls/matching/communicator_table.hpp>
#include <colls/matching/in_flight.hpp>
#include <colls/matching/match_queues.hpp>
#include <colls/matching/recovery_owner.hpp>
#include <colls/matching/scratch_pool.hpp>
#include <colls/matching/state_report.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace colls {

class communicator_recovery;
class stragglers;

/// The interface through which a tag_matcher asks its transports to fail operations and to send
/// messages about failures and late ranks.
class failure_hooks {
 public:
  /// Called when `communicator` has been revoked. Fails its sends with `reason`. Also fails each of
  /// its receives for which only a part of the message has arrived. Sends `reason` to all connected
  /// peers except `reporter`, the rank that reported the failure. `reporter` is -1 if this rank
  /// detected the failure itself.
  virtual void revoked(communicator_state& communicator, const failure& reason, int reporter) = 0;
  /// Sends to `peer` an announcement of `record`, an operation that has waited for a long time. The
  /// announcement contains the report `known`. Opens a connection if there is none. `peer` answers
  /// with its own report.
  virtual void announce(int peer, const operation_record& record, const state_report& known) = 0;
  /// Sends the report `known` to `peer` without an announcement, so `peer` sends no report in
  /// return. This rank must be connected to `peer`.
  virtual void report(int peer, std::uint32_t communicator, const state_report& known) = 0;
  /// Sends the fingerprint of the local call with the number `sequence` to `peer`. `peer` has sent
  /// a message of a different call with the same number. It compares the fingerprint with its own.
  virtual void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                       const fingerprint& local_call) = 0;
  /// Called when `peer` waits for this rank in a communicator that this rank has left or that has
  /// failed on this rank. Sends `reason` to `peer`.
  virtual void refuse(int peer, const failure& reason) = 0;
  /// Appends to `ranks` the ranks that the operation waits for although it has not posted a receive
  /// from them. Such ranks are, for example, the destinations of its pending sends.
  virtual void add_awaited(const operation_record& record, std::vector<int>& ranks) {
    (void)record, (void)ranks;
  }
  /// Appends to `ranks` each rank from which a receive of this operation has so far got only a part
  /// of a message.
  virtual void add_senders(const operation_record& record, std::vector<int>& ranks) {
    (void)record, (void)ranks;
  }
  /// Returns whether a control message can reach `peer` without opening a connection.
  virtual bool is_connected(int peer) {
    (void)peer;
    return true;
  }
  /// Tries to open a connection to `peer` for control messages. Does not report an error if no
  /// connection is possible.
  virtual void open_connection(int peer) { (void)peer; }
  /// Returns the sequence number of the newest collective of `communicator` for which a message
  /// from `peer` has arrived, or 0 if there is no such collective.
  virtual std::uint64_t newest_sequence_from(int peer, std::uint32_t communicator) {
    (void)peer, (void)communicator;
    return 0;
  }
  /// Sends the bytes of a recovery message to `peer`. Opens a connection if there is none. Returns
  /// false if `peer` has left the world, so that it will not answer.
  virtual bool recover(int peer, std::uint32_t communicator, std::span<const std::byte> message) {
    (void)peer, (void)communicator, (void)message;
    return true;
  }
  /// Returns whether `recover` sends messages.
  virtual bool can_recover() const { return false; }
  /// Asks `peer`, whose connection has ended, whether it goes on without this rank. If so, calls
  /// `tag_matcher::excluded_by`.
  virtual void ask_lost_peer(int peer) { (void)peer; }
  /// Called when the ranks have agreed to go on without `peer`, or, if not `is_excluded`, when
  /// those of another communicator have agreed to go on with it.
  virtual void peer_excluded(int peer, bool is_excluded) { (void)peer, (void)is_excluded; }
  /// Returns whether each loss of a rank of the communicator is proved, as `failure::proved` says.
  /// The result must be equal on all ranks of the communicator.
  virtual bool proves_losses(const communicator_state& communicator) const {
    (void)communicator;
    return true;
  }
  /// Returns true if the operating system reports that a signal or a debugger has stopped the
  /// process of `peer`. Returns false if this is unknown.
  virtual bool is_stopped(int peer) {
    (void)peer;
    return false;
  }

 protected:
  ~failure_hooks() = default;
};

/// Returns the key of an announcement of the operation `record`. An announcement tells a peer that
/// the operation has waited for a long time, not necessarily for this peer. `source` is the rank
/// that sends the announcement.
inline message_key announcement(int source, const operation_record& record) {
  return {source, record.communicator->id(), record.sequence,
          record.hash != 0 ? std::uint16_t{0} : message_key::point_to_point};
}

/// Returns a failure that says that the rank `peer` has left the world, that is, that `peer` has
/// closed its world communicator. An operation that still waits for `peer` fails with this failure.
failure peer_left_failure(int peer);

/// The matcher of one rank. It matches messages with receives. It checks that a message and its
/// receive belong to the same call and have the same length, and that the communicator has not
/// failed. If a communicator fails on this rank, the matcher revokes the communicator on all ranks.
class tag_matcher final : public match_queues, recovery_owner {
 public:
  explicit tag_matcher(int rank);
  ~tag_matcher();

  int rank() const { return rank_; }
  void add(failure_hooks& hooks);
  void remove(failure_hooks& hooks);
  bool has_hooks() const { return !hooks_.empty(); }

  // ---- communicators

  void add(communicator_state& communicator);
  void remove(communicator_state& communicator);
  /// Returns whether the communicator `id` has failed, or had failed when this rank left it.
  bool has_failed(std::uint32_t id) const {
    if (const communicator_state* const comm = find(id)) return comm->failed();
    const communicator_table::departed* const left = communicators_.find_departed(id);
    return left != nullptr && left->reason != nullptr;
  }
  communicator_state* find(std::uint32_t id) const { return communicators_.find(id); }
  /// Reserves the ids from `first` to `first + count - 1` for a communicator that is being created.
  /// Returns false if one of these ids is reserved or in use on this rank, or was in use before.
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    return communicators_.hold_ids(first, count);
  }
  void free_ids(std::uint32_t first) { communicators_.free_ids(first); }
  void abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& reason);

  /// Fails all operations on the communicator with `reason`. The matcher fails the queued receives.
  /// The transports fail the sends and the partly filled receives of this rank, and inform the
  /// other ranks. Does nothing if the communicator has already failed. `reporter` is -1 if this
  /// rank detected the failure. Otherwise it is the rank that reported the failure to this rank. If
  /// the store reported the failure, `reporter` is this rank.
  void revoke(communicator_state& communicator, failure reason, int reporter = -1);

  /// Called when `reporter` has told this rank that the communicator `id` has failed. Revokes this
  /// communicator. If this rank is still creating the communicator, stores the report, and `add`
  /// will revoke the communicator. A report that this rank is dead is wrong: the communicator fails
  /// because of the rank that takes this rank for dead.
  void revoke(std::uint32_t id, const reported_failure& told, int reporter);

  /// Called when the rank `peer` has died. Revokes all communicators that contain `peer`, except
  /// those that are being closed. If this rank is still creating a communicator that contains
  /// `peer`, `add` will revoke that communicator. Communicators without `peer` stay usable.
  void peer_died(int peer, const failure& reason, int reporter = -1);

  /// Called when the operation `record` still waits for `peer`, but `peer` has left the world.
  /// Revokes the communicator of the operation. Returns the error with which the caller must
  /// complete the operation.
  std::error_code peer_left(int peer, const operation_record& record);

  /// Calls `visitor(id, reason)` for each failed communicator that contains `peer`, and for the
  /// world if it had failed when this rank left it. When a connection to `peer` has opened, a
  /// transport uses this function to tell `peer` which communicators have failed, and why.
  template <class Visitor>
  void for_each_failed(int peer, Visitor visitor) const {
    for (const communicator_state* communicator : communicators_.all()) {
      if (!communicator->failed() || communicator->rank_of(peer) < 0) continue;
      visitor(communicator->id(), reason_for(peer, communicator->reason(), communicator->id()));
    }
    const communicator_table::departed* const world = communicators_.find_departed(0);
    if (world != nullptr && world->reason != nullptr) {
      visitor(std::uint32_t{0}, reason_for(peer, *world->reason, 0));
    }
  }

  // ---- messages

  /// Checks whether a message from the rank `source` may be stored in the buffer of `receive`.
  /// Returns no error if it may. Otherwise returns one of the following errors:
  /// - `errc::truncated` if the message is a point-to-point message and is longer than the buffer.
  /// - `errc::mismatch` if the message of a collective belongs to a different call than the
  ///   receive. The matcher then begins a dispute.
  /// - `errc::mismatch` if the message of a collective belongs to the same call as the receive, but
  ///   has a different length than the buffer. The matcher then revokes the communicator.
  std::error_code check(posted_receive& receive, int source, std::size_t size, std::uint64_t hash) {
    if (receive.key.is_point_to_point()) {
      if (size <= receive.size) return {};
      receive.source = source;
      receive.record->bytes_expected = size;
      return errc::truncated;
    }
    return check(receive.key, receive.size, *receive.record, size, hash);
  }
  /// Checks whether a message of a collective belongs to the same call as the operation `record`
  /// and has a length of `expected` bytes. If the message belongs to a different call, begins a
  /// dispute. If it has a different length, revokes the communicator. In both cases, returns
  /// `errc::mismatch`.
  std::error_code check(const message_key& key, std::size_t expected,
                        const operation_record& record, std::size_t size, std::uint64_t hash) {
    if (hash == record.hash && size == expected) return {};
    return reject(key, expected, record, size, hash);
  }

  /// Returns whether this rank accepts a message with this key and this fingerprint hash. A rank
  /// accepts a message if it has posted a receive for the message or may still post one. Returns
  /// false in the following cases:
  /// - This rank made a different call with the sequence number of the message. The matcher begins
  ///   a dispute.
  /// - The communicator has failed or will not be created on this rank. The matcher sends the
  ///   reason to the sender.
  /// - This rank has left the communicator. The matcher tells this to the sender, unless the
  ///   message belongs to a collective that this rank had entered before it left.
  bool inspect(const message_key& key, std::uint64_t hash) {
    const communicator_state* const communicator = find(key.communicator);
    const bool fits = communicator != nullptr && !communicator->failed() &&
                      (key.is_point_to_point() || communicator->agrees(key.sequence, hash));
    return fits || is_wanted(key);
  }

  /// Begins a dispute with `peer`, which made a different call than this rank under the number
  /// `sequence`. Sends the fingerprint of the local call to `peer`. `peer` then knows both
  /// fingerprints and revokes the communicator with a reason that names both calls.
  void begin_dispute(communicator_state& communicator, std::uint64_t sequence, int peer);

  /// Called when `peer` has begun a dispute about the call with the number `sequence`. `peer_call`
  /// is the fingerprint of the call that `peer` made. Revokes the communicator `id` if this rank
  /// made a different call under that number or no longer remembers its call.
  void compare(int peer, std::uint32_t id, std::uint64_t sequence, const fingerprint& peer_call);

  // ---- calls

  /// Adds the operation `record` to the operations in flight. For a collective, also checks the
  /// unexpected messages, which are messages that arrived before their receives were posted. Begins
  /// a dispute if such a message has the sequence number of the collective but belongs to a
  /// different call.
  [[gnu::always_inline]] void begin(operation_record& record) {
    calls_.add(record);
    if (record.hash != 0 && has_unexpected()) check_unexpected(record);
  }
  void end(operation_record& record) {
    calls_.remove(record);
    if (!stragglers_.empty()) report_end(record);
  }
  bool any_in_flight() const { return !calls_.empty(); }
  /// Returns the oldest operation in flight on this rank, or null if there is none. The operation
  /// may belong to any communicator. `in_flight::next` returns the next younger operation.
  operation_record* first_in_flight() const { return calls_.first(); }

  /// Checks the deadlines of the operations in flight. If an operation has waited for 100 ms, sends
  /// announcements to the ranks that it waits for. If the operation is the oldest collective of its
  /// communicator, also sends announcements to the ranks that `for_each_neighbour` visits.
  void sweep(time_point now);
  time_point due() const;
  /// Makes the next sweep check the call `record`, even if its next check is not due yet. Called
  /// when the call was queued behind other calls of its communicator and now starts.
  void check_soon(operation_record& record) { calls_.check_soon(record); }
  /// Returns the number of checks that `sweep` has made so far.
  std::uint64_t check_count() const { return calls_.check_count(); }

  // ---- late ranks

  /// Returns the report that this rank sends to its peers about the communicator. The report
  /// contains the state of this rank and the states of the ranks that this rank knows to be late.
  state_report make_report(std::uint32_t communicator, time_point now);
  /// Stores the states in a report from `peer`. Returns false if the report is malformed.
  bool receive_report(int peer, std::uint32_t communicator, const state_report& report,
                      time_point now);
  /// Called when a connection to `peer` has opened. For each communicator that contains `peer`,
  /// announces the oldest collective in flight to `peer`. Skips a communicator if this rank has
  /// not yet announced any of its operations to other ranks.
  void peer_connected(int peer, time_point now);

  // ---- recovery

  /// Returns the agreements of a communicator of this rank.
  communicator_recovery& recovery_of(const communicator_state& communicator);
  /// Returns whether the transports can send recovery messages.
  bool can_recover() const;
  /// Handles the bytes of a recovery message from `peer`. Returns false if no rank of colls sends
  /// such a message.
  bool receive_recovery(int peer, std::uint32_t communicator, std::span<const std::byte> message);
  /// Called when this rank cannot reach `peer` any more, and does not know that `peer` has ended.
  void link_broken(int peer);
  /// Returns whether a call of this rank waits for an agreement with `peer`.
  bool is_recovering_with(int peer) const;
  /// Called when `peer` has ended or has left the world. It takes part in no agreement any more.
  void peer_ended(int peer);
  /// Called when the ranks have agreed to go on with `peer`. Forgets that others have suspected it,
  /// and that those of another communicator go on without it.
  void confirm(int peer);
  /// Called when the ranks have agreed to go on without `peer`, which may live. It is told so
  /// whenever it sends anything.
  void exclude(int peer);
  /// Called when `peer` has told this rank that it goes on without it.
  void excluded_by(int peer);
  bool is_excluded(int peer) const {
    return std::find(excluded_.begin(), excluded_.end(), peer) != excluded_.end();
  }

  // ---- working memory

  using block = scratch_pool::block;
  block acquire_scratch(std::size_t size) { return scratch_pool_.acquire(size); }
  void release_scratch(const block& used) noexcept { scratch_pool_.release(used); }

 private:
  [[gnu::noinline]] void check_unexpected(const operation_record& record) {
    // Several peers may have sent messages of different calls. A dispute with one of these peers is
    // enough, because the dispute revokes the communicator on all ranks.
    int peer = -1;
    for_each_unexpected([&](const unexpected_message& message) {
      if (message.key.communicator == record.communicator->id() &&
          message.key.sequence == record.sequence && message.hash != record.hash) {
        peer = message.key.peer;
      }
    });
    if (peer >= 0) begin_dispute(*record.communicator, record.sequence, peer);
  }
  [[gnu::noinline, gnu::cold]] std::error_code reject(const message_key& key, std::size_t expected,
                                                      const operation_record& record,
                                                      std::size_t size, std::uint64_t hash) {
    if (hash != record.hash) {
      begin_dispute(*record.communicator, key.sequence, key.peer);
    } else {
      failure reason(errc::mismatch);
      reason.culprit = key.peer;
      reason.operation = record.operation;
      reason.sequence = key.sequence;
      reason.communicator = key.communicator;
      reason.set_detail("rank %d sent %zu bytes where rank %d expects %zu", key.peer, size, rank_,
                        expected);
      revoke(*record.communicator, reason);
    }
    return errc::mismatch;
  }
  // Handles a message that `inspect` cannot accept at once: the communicator is unknown or has
  // failed, or this rank made a different call with the sequence number of the message. Returns
  // true if this rank may still create the communicator. Otherwise begins a dispute or tells the
  // sender why this rank will not receive the message, and returns false. Tells the sender nothing
  // if this rank had entered the collective before it left.
  [[gnu::noinline, gnu::cold]] bool is_wanted(const message_key& key) {
    communicator_state* const communicator = find(key.communicator);
    if (communicator == nullptr) {
      if (const failure* const abandoned = communicators_.find_abandoned(key.communicator)) {
        failure reason = *abandoned;
        reason.communicator = key.communicator;
        refuse_peer(key.peer, key.communicator, reason);
        return false;
      }
      const communicator_table::departed* const departed_entry =
          communicators_.find_departed(key.communicator);
      if (departed_entry == nullptr) return true;
      if (departed_entry->reason != nullptr) {
        refuse_peer(key.peer, key.communicator, *departed_entry->reason);
        return false;
      }
      if (!key.is_point_to_point() && key.sequence < departed_entry->next_sequence) return false;
      failure reason(errc::closed);
      reason.culprit = reason.observer = rank_;
      reason.communicator = key.communicator;
      reason.sequence = key.is_point_to_point() ? 0 : key.sequence;
      reason.set_detail("rank %d has closed the communicator", rank_);
      refuse_peer(key.peer, key.communicator, reason);
      return false;
    }
    if (communicator->failed()) {
      // The sender may not know of the failure yet, because it may have no connection to the ranks
      // that have reported the failure. This rank therefore tells the sender.
      refuse_peer(key.peer, key.communicator, communicator->reason());
      return false;
    }
    begin_dispute(*communicator, key.sequence, key.peer);
    return false;
  }
  void refuse_peer(int peer, std::uint32_t communicator, const failure& reason);
  // Returns the failure that `peer` is told if `reason` is why the communicator has failed.
  failure reason_for(int peer, const failure& reason, std::uint32_t communicator) const;

  // Returns the ranks whose messages the operation still waits for, without duplicates. A receive
  // from any source counts as rank -1.
  std::vector<int> pending_senders(const operation_record& record);
  // Returns the ranks to which the operation has pending sends and the ranks that it waits for in a
  // barrier. The result has no duplicates.
  std::vector<int> pending_receivers(const operation_record& record) const;
  // Returns all ranks that the operation waits for: the pending senders, then the pending
  // receivers. A rank that is both occurs twice.
  std::vector<int> peers_of(const operation_record& record);
  stragglers* stragglers_on(std::uint32_t communicator);
  state_report own_state(std::uint32_t communicator) const;
  // A rank whose call on another communicator has failed reports no operation. Sets the operation
  // of `state` to that call, if `table` still has it, because it explains where the rank was.
  void keep_failed_operation(rank_state& state, const stragglers& table) const;
  stragglers& ensure_stragglers(const operation_record& record, time_point now);
  void refresh(stragglers& table, time_point now);

  void announce(const operation_record& record, time_point now);
  void spread_reports(time_point now);
  // Sends the report `known` to each rank that this rank queries and to which it is connected.
  void report_to_queried(stragglers& table, const state_report& known);
  // Called when the operation has ended on this rank. Reports the end to the ranks that this rank
  // queries. Without this report, those ranks might assume that this rank still waits in the
  // operation. Their queries would not help, because a rank does not answer queries while it
  // computes between two calls.
  void report_end(const operation_record& record);

  /// What this rank knows about the rank that is late for an operation.
  struct late_rank_info {
    int culprit = -1;       // the late rank, or -1 if none is known
    int waited_for = -1;    // a rank that the operation waits for, or -1 if none is known
    detail::line sentence;  // says which rank is late and what that rank does
  };
  // Returns true if `record` is a send or a receive and this rank has sent an announcement to its
  // peer within the last 20 ms. In this case `sweep` does not announce `record`. This limits the
  // number of announcements when very many sends and receives wait for the same peer. Returns false
  // for a send_recv, which may have two peers.
  bool is_recently_announced(const operation_record& record, time_point now);
  late_rank_info find_late_rank(const operation_record& record, time_point now);
  void describe_late_peer(late_rank_info& info, const operation_record& record, time_point now);
  void describe_late_member(late_rank_info& info, const operation_record& record, time_point now);

  // Queries the ranks whose reports may be outdated. Without these queries, this rank might name
  // such a rank as late by mistake. If a queried rank has not answered yet, schedules another check
  // of `record` and returns true.
  bool requery_stragglers(operation_record& record, time_point now);
  // Writes a log entry that names the late ranks for which `record` waits. A rank that is alive but
  // makes no call is reported as late, never as dead.
  void log_late_ranks(operation_record& record, time_point now);
  void note_logged(const communicator_state& comm, int peer, time_point now);

  void expire(operation_record& record, time_point now, bool total);

  /// A recovery message for a communicator that this rank is still creating.
  struct early_recovery {
    int peer;
    std::uint32_t communicator;
    std::vector<std::byte> message;
  };
  bool send_recovery(int peer, std::uint32_t communicator,
                     std::span<const std::byte> message) override;
  void losses_agreed(const communicator_state& communicator,
                     const std::vector<lost_rank>& lost) override;
  void excluded(const communicator_state& communicator) override;
  void ask_lost_peer(int peer) override {
    for (failure_hooks* hooks : hooks_) hooks->ask_lost_peer(peer);
  }
  communicator_recovery* find_recovery(std::uint32_t id) const;
  void keep_early_recovery(int peer, std::uint32_t id, std::span<const std::byte> message);
  void replay_early_recoveries(communicator_state& communicator);
  void end_recovery(std::uint32_t id);

  int rank_;
  std::vector<failure_hooks*> hooks_;
  communicator_table communicators_;
  in_flight calls_;
  // One per communicator where an operation has waited long.
  std::vector<std::unique_ptr<stragglers>> stragglers_;
  time_point last_spread_ = -seconds;
  scratch_pool scratch_pool_;
  std::vector<std::unique_ptr<communicator_recovery>> recoveries_;
  std::vector<int> broken_links_;                 // the peers that this rank cannot reach
  std::vector<int> excluded_;                     // the peers that shrink has left out
  std::vector<early_recovery> early_recoveries_;  // for communicators that are being created
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/tag_matcher.ipp>
#endif
