// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Control messages between rank threads. A control message carries no user data. Examples are state
// reports, revocations of communicators, and the goodbye that a rank sends when it leaves.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/message.hpp>

#include <new>
#include <vector>

namespace colls::threads {

/// A control message that is not a goodbye. There are five kinds:
/// - An announcement tells a peer that an operation of the sender has waited for a long time. It
///   also contains a report.
/// - A report contains the state of the sender and of the ranks that the sender knows to be late.
/// - A dispute contains the fingerprint (the arguments) of a call of the sender. The sender sends
///   it after it has received a message of a different call with the same sequence number.
/// - A revocation contains the reason why a communicator has failed.
/// - A recovery message contains the bytes of a `recovery_message`.
struct control_message final : inbox_entry {
  inbox* return_inbox = nullptr;  // the inbox of the sender, which reuses the message
  message_key key;                // its `peer` is the sender
  std::uint64_t hash = 0;
  fingerprint print;
  state_report state;
  failure reason;
  std::vector<std::byte> recovery;
};

/// The last message that a rank sends to a peer.
struct goodbye_message final : inbox_entry {
  int source = -1;
  bool is_broken = false;  // whether the sender has failed for lack of memory
};

/// The part of a rank that sends its control messages. When the receiver has processed a
/// `control_message`, it gives the message back, and this rank reuses it. If there is no memory for
/// an announcement or a report, `announce` and `report` send nothing. That is harmless, because the
/// rank sends such messages repeatedly.
class control_messages {
 public:
  control_messages(inboxes& world_inboxes, int rank)
      : inboxes_(world_inboxes),
        rank_(rank),
        goodbyes_(static_cast<std::size_t>(world_inboxes.size())) {}

  void announce(int peer, const operation_record& waiting, const state_report& state) {
    control_message* const msg = prepare(inbox_entry::kind::announce);
    if (msg == nullptr) return;
    msg->key = announcement(rank_, waiting);
    msg->hash = waiting.hash;
    msg->state = state;
    post(peer, *msg);
  }
  void report(int peer, std::uint32_t communicator, const state_report& state) {
    control_message* const msg = prepare(inbox_entry::kind::report);
    if (msg == nullptr) return;
    msg->key.communicator = communicator;
    msg->state = state;
    post(peer, *msg);
  }
  /// Sends a dispute to `peer`. `print` is the fingerprint of this rank's call with the number
  /// `sequence`. Returns false if there is no memory for the message.
  [[nodiscard]] bool dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                             const fingerprint& print) {
    control_message* const msg = prepare(inbox_entry::kind::dispute);
    if (msg == nullptr) return false;
    msg->key = {rank_, communicator, sequence, 0};
    msg->print = print;
    post(peer, *msg);
    return true;
  }
  /// Tells `peer` that the communicator has failed, and why. Returns false if there is no memory
  /// for the message.
  [[nodiscard]] bool revoke(int peer, std::uint32_t communicator, const failure& reason) {
    control_message* const msg = prepare(inbox_entry::kind::revoke);
    if (msg == nullptr) return false;
    msg->key.communicator = communicator;
    msg->reason = reason;
    post(peer, *msg);
    return true;
  }
  /// Sends a recovery message to `peer`. Returns false if there is no memory for it.
  [[nodiscard]] bool recover(int peer, std::uint32_t communicator,
                             std::span<const std::byte> message) {
    control_message* const msg = prepare(inbox_entry::kind::recovery);
    if (msg == nullptr) return false;
    try {
      msg->recovery.assign(message.begin(), message.end());
    } catch (const std::bad_alloc&) {
      pool_.give(*msg);
      return false;
    }
    msg->key.communicator = communicator;
    post(peer, *msg);
    return true;
  }
  /// Sends a goodbye to `peer`. May be called only once for each peer, because there is only one
  /// entry for each peer. Allocates no memory. After the goodbye, this rank may still return
  /// entries to `peer` and send revocations.
  void goodbye(int peer, bool is_broken) noexcept {
    goodbye_message& last = goodbyes_[static_cast<std::size_t>(peer)];
    last.type = inbox_entry::kind::goodbye;
    last.source = rank_;
    last.is_broken = is_broken;
    inboxes_[peer].put(last);  // has no effect if the peer has left too
  }

  /// Keeps a message that its receiver has given back, so that this rank can reuse it.
  void recycle(control_message& msg) noexcept { pool_.give(msg); }
  /// Gives a received message back to its sender.
  static void give_back(control_message& msg) noexcept {
    msg.type = inbox_entry::kind::processed;
    msg.return_inbox->put(msg);
  }

 private:
  // Returns a message of the kind `type` that this rank can send, or null if there is no memory.
  control_message* prepare(inbox_entry::kind type) noexcept {
    try {
      control_message& msg = pool_.take();
      msg.type = type;
      msg.return_inbox = &inboxes_[rank_];
      msg.key = {};
      msg.key.peer = rank_;
      return &msg;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void post(int peer, control_message& msg) {
    if (!inboxes_[peer].put(msg)) pool_.give(msg);
  }

  inboxes& inboxes_;
  int rank_;
  node_pool<control_message> pool_;
  std::vector<goodbye_message> goodbyes_;  // indexed by rank
};

}  // namespace colls::threads
