// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator_recovery: the agreements of one communicator on one rank, with the calls that wait
// for them.

#include <colls/base/clock.hpp>
#include <colls/base/error.hpp>
#include <colls/base/flag_guard.hpp>
#include <colls/base/function_ref.hpp>
#include <colls/coroutine/completion.hpp>
#include <colls/matching/consensus.hpp>
#include <colls/matching/operation_record.hpp>
#include <colls/matching/recovery_owner.hpp>

#include <deque>
#include <memory>
#include <vector>

namespace colls {

/// Returns a failure that says that the other ranks of the communicator go on without `peer`.
failure excluded_failure(int peer, std::uint32_t communicator);

/// Runs the `consensus` of a communicator: passes its messages to the transport, tells it of
/// losses, and completes the calls of this rank one after the other. It exists from the first call
/// or message on, and lives on when this rank has closed the communicator, since other ranks may
/// need a decision that this rank has got. Ranks in its interface are world ranks, unless it says
/// otherwise.
class communicator_recovery final : consensus::network {
 public:
  /// Returns the value that a call passes to the agreement with the number `number`.
  using value_source = function_ref<std::uint64_t(std::uint64_t number)>;

  /// A call that waits for its agreement. It models `startable`.
  class waiter {
   public:
    /// `value` is called when the agreement of the call begins on this rank.
    waiter(communicator_recovery& recovery, collective operation, quorum needed, value_source value)
        : recovery_(&recovery), request_{operation, needed, false, 0}, value_(value) {}
    waiter(const waiter&) = delete;
    waiter& operator=(const waiter&) = delete;
    ~waiter() {
      if (is_queued_) recovery_->remove(*this);
    }

    bool start(completion& done);
    /// Returns the decision, or throws the error with which the call ends.
    recovery_decision result();

   private:
    friend communicator_recovery;

    communicator_recovery* recovery_;
    recovery_request request_;
    value_source value_;
    completion* done_ = nullptr;
    bool is_queued_ = false;
    recovery_decision decision_;
    failure reason_;  // has no code if there is a decision
  };

  communicator_recovery(recovery_owner& owner, const communicator_state& communicator,
                        bool is_always_proved);
  communicator_recovery(const communicator_recovery&) = delete;
  communicator_recovery& operator=(const communicator_recovery&) = delete;

  std::uint32_t id() const { return members_.id(); }
  bool has_departed() const { return consensus_.has_departed(); }
  bool is_waiting() const { return !waiters_.empty(); }

  /// Returns whether a call waits for an agreement with `peer`.
  bool is_waiting_for(int peer) const { return is_waiting() && members_.rank_of(peer) >= 0; }

  /// Called when this rank cannot reach `peer` any more, or, if `proved`, when `peer` has ended.
  void peer_lost(int peer, bool proved);
  /// Called when `peer` has told this rank that it goes on without it.
  void excluded_by(int peer);
  /// Handles a message from `peer`. Returns false if no rank of colls sends such a message.
  bool receive(int peer, std::span<const std::byte> message);
  /// Called when this rank closes the communicator.
  void depart() { consensus_.depart(); }
  /// Tells other ranks which rank is late, and ends a call that has no quorum.
  void sweep(time_point now);
  time_point due() const { return is_waiting() ? next_sweep_ : never; }
  /// Returns the failure of a call whose deadline has passed.
  failure timeout_failure() const;

 private:
  void send(int peer, const recovery_message& message) override;

  void add(waiter& call);
  void remove(waiter& call);
  void begin_front();
  // The others may have been unreachable for some time, and may go on without this rank.
  void ask_lost_peers();
  /// Runs `step`, which uses the protocol, and then sends what it has to send.
  template <class Step>
  void run(const Step& step);
  void flush();
  void complete_front();
  bool complete_one();
  void end_front(const failure& reason);
  failure make_failure(errc code, int culprit = -1) const;

  struct outgoing_message {
    int peer;  // a rank of the communicator
    recovery_message message;
  };

  recovery_owner& owner_;
  communicator_state members_;  // of the communicator, which may be destroyed before this object
  consensus consensus_;
  std::deque<waiter*> waiters_;
  std::vector<outgoing_message> unsent_;
  bool is_running_ = false;
  bool is_completing_ = false;
  time_point next_sweep_ = 0;
  time_point no_quorum_since_ = never;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/matching/communicator_recovery.ipp>
#endif
