// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tag_matcher: matches messages with posted receives. All transports of one rank on one executor
// share a matcher. The matcher also detects mismatched calls, expired deadlines and late ranks.
//
// The fingerprint of a call contains the arguments that must be equal on all ranks. In a dispute,
// two ranks that made different calls compare their fingerprints. A waiting rank sends
// announcements, which are messages that name the operation that waits.

#include <colls/base/log.hpp>
#include <colls/matching/communicator_table.hpp>
#include <colls/matching/in_flight.hpp>
#include <colls/matching/match_queues.hpp>
#include <colls/matching/scratch_pool.hpp>
#include <colls/matching/stragglers.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace colls {

/// The interface through which a tag_matcher asks its transports to fail operations and to send
/// messages about failures and late ranks.
class failure_hooks {
 public:
  /// Called when the communicator has been revoked. Completes the sends and the partly filled
  /// receives of the communicator with `reason`. Sends `reason` to all connected peers except
  /// `reporter`, the rank that reported the failure. `reporter` is -1 if this rank detected the
  /// failure itself.
  virtual void revoked(communicator_state& communicator, const failure& reason, int reporter) = 0;
  /// Sends to `peer` an announcement of the operation `record`, which has waited long, together
  /// with the report `known`. Opens a connection if there is none. `peer` answers with its own
  /// report.
  virtual void announce(int peer, const operation_record& record, const state_report& known) = 0;
  /// Sends the report `known` to `peer`, to which this rank is connected. `peer` does not answer.
  virtual void report(int peer, std::uint32_t communicator, const state_report& known) = 0;
  /// Sends the fingerprint of the local call `sequence` to `peer`, which has sent a message of a
  /// different call under the same number. `peer` compares that fingerprint with its own.
  virtual void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                       const fingerprint& local_call) = 0;
  /// Sends `reason` to `peer`, because `peer` waits for this rank in a communicator that this rank
  /// has left or that has failed on this rank.
  virtual void refuse(int peer, const failure& reason) = 0;
  /// Appends to `ranks` the ranks that the operation waits for in other ways than by receives, such
  /// as the destinations of its pending sends.
  virtual void add_awaited(const operation_record& record, std::vector<int>& ranks) {
    (void)record, (void)ranks;
  }
  /// Appends to `ranks` each rank from which a receive of this operation has so far got only part
  /// of a message.
  virtual void add_senders(const operation_record& record, std::vector<int>& ranks) {
    (void)record, (void)ranks;
  }
  /// Returns whether a control message can reach `peer` without opening a connection.
  virtual bool is_connected(int peer) {
    (void)peer;
    return true;
  }
  /// Opens a connection to `peer` for control messages. It is not an error if no connection is
  /// possible.
  virtual void open_connection(int peer) { (void)peer; }
  /// Returns the number of the newest collective of `communicator` for which a message of `peer`
  /// has arrived, or 0 if there is none.
  virtual std::uint64_t newest_sequence_from(int peer, std::uint32_t communicator) {
    (void)peer, (void)communicator;
    return 0;
  }
  /// Returns whether the system says that the process of `peer` is stopped.
  virtual bool is_stopped(int peer) {
    (void)peer;
    return false;
  }

 protected:
  ~failure_hooks() = default;
};

/// Returns the key of the announcement by which rank `source` tells a peer that the operation
/// `record` waits for the peer.
inline message_key announcement(int source, const operation_record& record) {
  return {source, record.communicator->id(), record.sequence,
          record.hash != 0 ? std::uint16_t{0} : message_key::point_to_point};
}

/// Returns the failure for an operation that waits for `peer` although `peer` has closed its world.
failure peer_left_failure(int peer);

/// The matcher of one rank. It matches messages with receives. It checks that a message and its
/// receive belong to the same call and have the same length, and that the communicator has not
/// failed. If a communicator fails on this rank, the matcher revokes the communicator on all ranks.
class tag_matcher : public match_queues {
 public:
  explicit tag_matcher(int rank);

  int rank() const { return rank_; }
  void add(failure_hooks& hooks);
  void remove(failure_hooks& hooks);

  // ---- communicators

  void add(communicator_state& communicator);
  void remove(communicator_state& communicator);
  communicator_state* find(std::uint32_t id) const { return communicators_.find(id); }
  /// Reserves ids (see `communicator_table::hold_ids`).
  bool hold_ids(std::uint32_t first, std::uint32_t count) {
    return communicators_.hold_ids(first, count);
  }
  void free_ids(std::uint32_t first) { communicators_.free_ids(first); }
  void abandon_ids(std::uint32_t first, const std::shared_ptr<const failure>& reason);

  /// Fails all operations on the communicator with `reason`, on this rank directly and on the other
  /// ranks through the transports. Does nothing if the communicator has already failed. `reporter`
  /// is the rank that sent the report of the failure, this rank if the store distributed the
  /// report, or -1 if this rank detected the failure.
  void revoke(communicator_state& communicator, failure reason, int reporter = -1);

  /// Revokes the communicator `id` because of a report that it has failed. If this rank is still
  /// creating the communicator, revokes it as soon as it has been created.
  void revoke(std::uint32_t id, const reported_failure& report, int reporter);

  /// Revokes the communicators that contain the dead rank `peer`, including communicators that are
  /// created later. Other communicators stay usable.
  void peer_died(int peer, const failure& reason, int reporter = -1);

  /// Called when the operation `record` needs `peer`, which has left. Revokes the communicator of
  /// the operation and returns the error with which the operation fails.
  std::error_code peer_left(int peer, const operation_record& record);

  /// Calls `visitor` for each failed communicator that contains `peer`. A transport calls this
  /// function when `peer` connects, to report these failures to `peer`.
  template <class Visitor>
  void for_each_failed(int peer, Visitor visitor) const {
    for (const communicator_state* communicator : communicators_.all()) {
      if (communicator->failed() && communicator->rank_of(peer) >= 0) visitor(*communicator);
    }
  }

  // ---- messages

  /// Checks whether a message of the rank `source` may fill the receive. Returns `errc::truncated`
  /// if a point-to-point message is longer than the receive. If a message of a collective belongs
  /// to a different call than the receive, begins a dispute and returns `errc::mismatch`. If its
  /// length differs from that of the receive, revokes the communicator and returns
  /// `errc::mismatch`.
  std::error_code check(posted_receive& receive, int source, std::size_t size, std::uint64_t hash) {
    if (receive.key.is_point_to_point()) {
      if (size <= receive.size) return {};
      receive.source = source;
      receive.record->bytes_expected = size;
      return errc::truncated;
    }
    return check(receive.key, receive.size, *receive.record, size, hash);
  }
  /// Checks a message of a collective, as above, for an operation that expects `expected` bytes.
  std::error_code check(const message_key& key, std::size_t expected,
                        const operation_record& record, std::size_t size, std::uint64_t hash) {
    if (hash == record.hash && size == expected) return {};
    return reject(key, expected, record, size, hash);
  }

  /// Returns whether a receive may take a message with this key and hash, now or later. Returns
  /// false in the following cases:
  /// - This rank made a different call with the sequence number of the message. The matcher begins
  ///   a dispute.
  /// - The communicator has failed or will not be created on this rank. The matcher sends the
  ///   reason to the sender.
  /// - This rank has left the communicator. The matcher tells the sender, unless this rank had
  ///   entered the collective to which the message belongs.
  bool inspect(const message_key& key, std::uint64_t hash) {
    const communicator_state* const communicator = find(key.communicator);
    const bool fits = communicator != nullptr && !communicator->failed() &&
                      (key.is_point_to_point() || communicator->agrees(key.sequence, hash));
    return fits || is_wanted(key);
  }

  /// Sends the fingerprint of the local call `sequence` to `peer`, which made a different call
  /// under the same number. `peer` then knows both fingerprints and revokes the communicator with a
  /// reason that names both calls.
  void begin_dispute(communicator_state& communicator, std::uint64_t sequence, int peer);

  /// Handles a dispute that `peer` has begun by sending the fingerprint of its call `sequence`.
  /// Revokes the communicator if this rank made a different call under that number or no longer
  /// remembers its call.
  void compare(int peer, std::uint32_t id, std::uint64_t sequence, const fingerprint& peer_call);

  // ---- calls

  /// Begins a call. Begins a dispute if an unexpected message with the sequence number of the call
  /// belongs to a different call.
  [[gnu::always_inline]] void begin(operation_record& record) {
    calls_.add(record);
    if (record.hash != 0 && has_unexpected()) check_unexpected(record);
  }
  void end(operation_record& record) {
    calls_.remove(record);
    if (!stragglers_.empty()) report_end(record);
  }
  bool any_in_flight() const { return !calls_.empty(); }
  /// Returns the oldest call in flight of all communicators, or null if there is none. The member
  /// `next` of a call points to the next younger call.
  operation_record* first_in_flight() const { return calls_.first(); }

  /// Checks the deadlines of the operations in flight. When an operation has waited for 100 ms,
  /// announces it to the ranks that it waits for and to some other ranks.
  void sweep(time_point now);
  time_point due() const;
  /// Makes the next sweep check the call `record`. Called when a call that was queued behind other
  /// calls of its communicator may proceed.
  void check_soon(operation_record& record) { calls_.check_soon(record); }
  /// Returns the number of checks that `sweep` has made so far.
  std::uint64_t check_count() const { return calls_.check_count(); }

  // ---- late ranks

  /// Returns the report that this rank sends to its peers about the communicator: its own state,
  /// and the states of the ranks that it knows to be late.
  state_report make_report(std::uint32_t communicator, time_point now);
  /// Stores the states that a report of `peer` contains. Returns false if the report is malformed.
  bool receive_report(int peer, std::uint32_t communicator, const state_report& report,
                      time_point now);
  /// Called when a connection to `peer` has opened. Announces to `peer` the collectives that have
  /// waited long.
  void peer_connected(int peer, time_point now);

  // ---- working memory

  using block = scratch_pool::block;
  block acquire_scratch(std::size_t size) { return scratch_pool_.acquire(size); }
  void release_scratch(const block& used) noexcept { scratch_pool_.release(used); }

 private:
  [[gnu::noinline]] void check_unexpected(const operation_record& record) {
    // One dispute is enough, because a dispute revokes the communicator.
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
  // The part of `inspect` for a message that does not fit a local call. Returns true if this rank
  // may still create the communicator of the message. Otherwise begins a dispute or tells the
  // sender why no receive will take the message, and returns false.
  [[gnu::noinline, gnu::cold]] bool is_wanted(const message_key& key) {
    communicator_state* const communicator = find(key.communicator);
    if (communicator == nullptr) {
      if (const failure* const abandoned = communicators_.find_abandoned(key.communicator)) {
        failure reason = *abandoned;
        reason.communicator = key.communicator;
        refuse_peer(key.peer, reason);
        return false;
      }
      const communicator_table::departed* const departed_entry =
          communicators_.find_departed(key.communicator);
      if (departed_entry == nullptr) return true;
      if (departed_entry->reason != nullptr) {
        refuse_peer(key.peer, *departed_entry->reason);
        return false;
      }
      if (!key.is_point_to_point() && key.sequence < departed_entry->next_sequence) return false;
      failure reason(errc::closed);
      reason.culprit = reason.observer = rank_;
      reason.communicator = key.communicator;
      reason.sequence = key.is_point_to_point() ? 0 : key.sequence;
      reason.set_detail("rank %d has closed the communicator", rank_);
      refuse_peer(key.peer, reason);
      return false;
    }
    if (communicator->failed()) {
      // The sender must be told, because it may have no connection to the ranks that reported the
      // failure.
      refuse_peer(key.peer, communicator->reason());
      return false;
    }
    begin_dispute(*communicator, key.sequence, key.peer);
    return false;
  }
  void refuse_peer(int peer, const failure& reason);

  // Returns the ranks whose messages the operation still waits for, without duplicates. A receive
  // from any source counts as rank -1.
  std::vector<int> pending_senders(const operation_record& record);
  // Returns the ranks that the operation waits for in other ways than by receives, without
  // duplicates.
  std::vector<int> pending_receivers(const operation_record& record) const;
  // Returns all ranks that the operation waits for.
  std::vector<int> peers_of(const operation_record& record);
  stragglers* stragglers_on(std::uint32_t communicator);
  state_report own_state(std::uint32_t communicator) const;
  stragglers& ensure_stragglers(const operation_record& record, time_point now);
  void refresh(stragglers& table, time_point now);

  void announce(const operation_record& record, time_point now);
  void spread_reports(time_point now);
  // Sends a report to each connected rank that this rank queries directly.
  void report_to_queried(stragglers& table, const state_report& known);
  // Tells the queried ranks that the operation has ended on this rank. Otherwise they might assume
  // that this rank still waits, because a rank that computes after the operation does not answer
  // queries.
  void report_end(const operation_record& record);

  /// What this rank knows about the rank that is late for an operation.
  struct late_rank_info {
    int culprit = -1;       // the late rank, or -1 if none is known
    int waited_for = -1;    // a rank that the operation waits for, or -1 if none is known
    detail::line sentence;  // says which rank is late and what that rank does
  };
  // Returns whether this rank has just announced a point-to-point operation to the peer of
  // `record`. Used to limit the number of announcements when very many sends and receives wait for
  // one peer.
  bool is_recently_announced(const operation_record& record, time_point now);
  late_rank_info find_late_rank(const operation_record& record, time_point now);
  void describe_late_peer(late_rank_info& info, const operation_record& record, time_point now);
  void describe_late_member(late_rank_info& info, const operation_record& record, time_point now);

  // Queries the ranks whose reports may be outdated, so that this rank does not report them as late
  // by mistake. Returns true if answers are outstanding; `record` is then checked again when the
  // queried ranks have had time to answer.
  bool requery_stragglers(operation_record& record, time_point now);
  // Writes a log entry that names the late ranks for which `record` waits. A rank that is alive but
  // makes no call is reported as late, never as dead.
  void log_late_ranks(operation_record& record, time_point now);
  void note_logged(const communicator_state& comm, int peer, time_point now);

  void expire(operation_record& record, time_point now, bool total);

  int rank_;
  std::vector<failure_hooks*> hooks_;
  communicator_table communicators_;
  in_flight calls_;
  std::vector<stragglers> stragglers_;  // one per communicator where an operation has waited long
  time_point last_spread_ = -seconds;
  scratch_pool scratch_pool_;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/tag_matcher.ipp>
#endif
