// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// tag_matcher: matches messages with posted receives. All transports of one rank and executor share
// a matcher, which also detects mismatched calls, expired deadlines and late ranks.
//
// The fingerprint of a call contains the arguments that must be equal on all ranks. In a dispute,
// two ranks that made different calls compare their fingerprints. A waiting rank sends
// announcements, which name the operation that waits.

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
  /// receives of the communicator with `reason`, and sends the reason to the peers on all open
  /// connections except to `reporter`.
  virtual void revoked(communicator_state& communicator, const failure& reason, int reporter) = 0;
  /// Sends an announcement to `peer`: the operation `record`, which has waited long, and what this
  /// rank knows of late ranks. Opens a connection if there is none. The peer answers with its
  /// report.
  virtual void announce(int peer, const operation_record& record, const state_report& known) = 0;
  /// Sends a report to `peer`, to which this rank is connected. The peer does not answer.
  virtual void report(int peer, std::uint32_t communicator, const state_report& known) = 0;
  /// Sends the local fingerprint to `peer`, which has sent a message of a different call. The peer
  /// compares the fingerprints.
  virtual void dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                       const fingerprint& local_call) = 0;
  /// Sends `reason` to `peer`, because `peer` waits for this rank in a communicator that this rank
  /// has left or that has failed on this rank.
  virtual void refuse(int peer, const failure& reason) = 0;
  /// Appends the ranks that the operation waits for in other ways than by receives.
  virtual void add_awaited(const operation_record& record, std::vector<int>& ranks) {
    (void)record, (void)ranks;
  }
  /// Appends the ranks whose messages the receives of the operation have consumed only in part.
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
  /// Returns the number of the newest collective of the communicator from which a message of `peer`
  /// has arrived, or 0.
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

/// Returns the key of the announcement by which rank `source` tells another rank that an operation
/// waits for that rank.
inline message_key announcement(int source, const operation_record& record) {
  return {source, record.communicator->id(), record.sequence,
          record.hash != 0 ? std::uint16_t{0} : message_key::point_to_point};
}

/// Returns the failure of an operation that waits for `peer` after `peer` has closed its world.
failure peer_left_failure(int peer);

/// The matcher of one rank. It matches messages with receives and checks that both belong to the
/// same call and have the same length, and that the communicator has not failed. If a communicator
/// fails on this rank, the matcher revokes it on all ranks.
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
  /// ranks through the transports. Only the first reason counts.
  void revoke(communicator_state& communicator, failure reason, int reporter = -1);

  /// Revokes the communicator `id`, because a peer has reported that it failed. If this rank is
  /// still creating the communicator, revokes it when it has been created.
  void revoke(std::uint32_t id, const reported_failure& report, int reporter);

  /// Revokes the communicators that contain the dead rank `peer`, both the existing ones and those
  /// created later. Other communicators stay usable.
  void peer_died(int peer, const failure& reason, int reporter = -1);

  /// Called when the operation needs a rank that has left. Revokes the communicator of the
  /// operation and returns the error with which the operation fails.
  std::error_code peer_left(int peer, const operation_record& record);

  /// Visits the failed communicators that contain `peer`. A transport reports these communicators
  /// to `peer` as soon as `peer` connects.
  template <class Visitor>
  void for_each_failed(int peer, Visitor visitor) const {
    for (const communicator_state* communicator : communicators_.all()) {
      if (communicator->failed() && communicator->rank_of(peer) >= 0) visitor(*communicator);
    }
  }

  // ---- messages

  /// Checks that a message of rank `source` may fill a receive. A message of a collective must
  /// belong to the same call and have the same length; otherwise the matcher revokes the
  /// communicator. A point-to-point message must not be longer than the receive.
  std::error_code check(posted_receive& receive, int source, std::size_t size, std::uint64_t hash) {
    if (receive.key.is_point_to_point()) {
      if (size <= receive.size) return {};
      receive.source = source;
      receive.record->bytes_expected = size;
      return errc::truncated;
    }
    return check(receive.key, receive.size, *receive.record, size, hash);
  }
  /// Checks a message of a collective for an operation that expects `expected` bytes.
  std::error_code check(const message_key& key, std::size_t expected,
                        const operation_record& record, std::size_t size, std::uint64_t hash) {
    if (hash == record.hash && size == expected) return {};
    return reject(key, expected, record, size, hash);
  }

  /// Compares a message with the local call of its sequence number, even if no receive is posted.
  /// Returns false if no receive will take the message. Either the message belongs to a different
  /// call, and the matcher has begun a dispute. Or the communicator has failed on this rank or this
  /// rank has left it, and the matcher has told the sender if the sender waits for this rank.
  bool inspect(const message_key& key, std::uint64_t hash) {
    const communicator_state* const communicator = find(key.communicator);
    const bool fits = communicator != nullptr && !communicator->failed() &&
                      (key.is_point_to_point() || communicator->agrees(key.sequence, hash));
    return fits || is_wanted(key);
  }

  /// Sends the local fingerprint to `peer`, which made a different call under the same sequence
  /// number. The rank that then knows both fingerprints revokes the communicator with a reason that
  /// names both calls.
  void begin_dispute(communicator_state& communicator, std::uint64_t sequence, int peer);

  /// Handles the fingerprint that a peer has sent in a dispute.
  void compare(int peer, std::uint32_t id, std::uint64_t sequence, const fingerprint& peer_call);

  // ---- calls

  /// Begins a call. Checks that the unexpected messages with its sequence number belong to this
  /// call.
  [[gnu::always_inline]] void begin(operation_record& record) {
    calls_.add(record);
    if (record.hash != 0 && has_unexpected()) check_unexpected(record);
  }
  void end(operation_record& record) {
    calls_.remove(record);
    if (!stragglers_.empty()) report_end(record);
  }
  bool any_in_flight() const { return !calls_.empty(); }
  /// Returns the oldest call in flight of all communicators, or null. The member `next` of a call
  /// points to the next younger call.
  operation_record* first_in_flight() const { return calls_.first(); }

  /// Checks the deadlines of the operations in flight. Announces an operation that has waited for
  /// 100 ms to the ranks that it waits for and to some other ranks.
  void sweep(time_point now);
  time_point due() const;
  /// Makes the next sweep check a call that was queued behind other calls of its communicator and
  /// may proceed now.
  void check_soon(operation_record& record) { calls_.check_soon(record); }
  /// Returns the number of checks that `sweep` has made so far.
  std::uint64_t check_count() const { return calls_.check_count(); }

  // ---- late ranks

  /// Returns the report of this rank for a peer that waits on the communicator: the state of this
  /// rank and the states of late ranks.
  state_report make_report(std::uint32_t communicator, time_point now);
  /// Handles a report of `peer`. Returns false if the report is malformed.
  bool receive_report(int peer, std::uint32_t communicator, const state_report& report,
                      time_point now);
  /// Announces the waiting operations to `peer`, to which a connection has just opened.
  void peer_connected(int peer, time_point now);

  // ---- working memory

  using block = scratch_pool::block;
  block acquire_scratch(std::size_t size) { return scratch_pool_.acquire(size); }
  void release_scratch(const block& used) noexcept { scratch_pool_.release(used); }

 private:
  [[gnu::noinline]] void check_unexpected(const operation_record& record) {
    // One dispute is enough, because it revokes the communicator.
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
  // Returns whether a receive may still take a message that `inspect` could not match with a local
  // call. Otherwise begins a dispute or tells the sender the reason.
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
      // Tells the sender, because it may have no connection to the ranks that reported the failure.
      refuse_peer(key.peer, communicator->reason());
      return false;
    }
    begin_dispute(*communicator, key.sequence, key.peer);
    return false;
  }
  void refuse_peer(int peer, const failure& reason);

  // Returns the ranks from which the operation has posted receives, without duplicates.
  std::vector<int> pending_senders(const operation_record& record);
  // Returns the ranks that the operation waits for in other ways than by receives.
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
  // Tells the queried ranks that this rank no longer waits, because this rank may compute from now
  // on and then does not answer queries.
  void report_end(const operation_record& record);

  /// The late rank, or -1 if none is known; the rank that the operation waits for, or -1; and a
  /// sentence about the late rank.
  struct late_rank_info {
    int culprit = -1;
    int waited_for = -1;
    detail::line sentence;
  };
  // Returns whether this rank has announced an operation to the same peer a moment ago. This limits
  // the announcements when very many sends and receives wait for one peer.
  bool is_recently_announced(const operation_record& record, time_point now);
  late_rank_info find_late_rank(const operation_record& record, time_point now);
  void describe_late_peer(late_rank_info& info, const operation_record& record, time_point now);
  void describe_late_member(late_rank_info& info, const operation_record& record, time_point now);

  // Queries the ranks whose reports may be outdated, before this rank reports them as late. Returns
  // true if the record will be checked again when these ranks have had time to answer.
  bool requery_stragglers(operation_record& record, time_point now);
  // Writes the late ranks to the log. A rank that is alive but makes no call is reported as late,
  // never as dead.
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
