// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Control messages between rank threads: the messages that carry no user data, such as state
// reports, revocations of communicators and goodbyes.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/message.hpp>

#include <new>
#include <vector>

namespace colls::threads {

/// A control message other than a goodbye. An announcement tells a peer that the sender waits for
/// that peer, and a report contains the state of the sender. A dispute contains the fingerprint
/// (the arguments) of the sender's call after a mismatch, and a revocation contains the reason why
/// a communicator has failed.
struct control_message final : inbox_entry {
  inbox* return_inbox = nullptr;  // the inbox of the sender, which reuses the message
  message_key key;                // its `peer` is the sender
  std::uint64_t hash = 0;
  fingerprint print;
  state_report state;
  failure reason;
};

/// The last message that a rank sends to a peer.
struct goodbye_message final : inbox_entry {
  int source = -1;
  bool is_broken = false;  // whether the sender has failed for lack of memory
};

/// The sender of the control messages of one rank. The receiver of a message gives the message back
/// to this rank, which reuses it. If there is no memory for an announcement or a report, none is
/// sent, because the rank sends such messages repeatedly.
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
  /// Sends the fingerprint `print` to `peer`. Returns false if there is no memory for the message.
  [[nodiscard]] bool dispute(int peer, std::uint32_t communicator, std::uint64_t sequence,
                             const fingerprint& print) {
    control_message* const msg = prepare(inbox_entry::kind::dispute);
    if (msg == nullptr) return false;
    msg->key = {rank_, communicator, sequence, 0};
    msg->print = print;
    post(peer, *msg);
    return true;
  }
  /// Tells `peer` that the communicator has failed. Returns false if there is no memory for the
  /// message.
  [[nodiscard]] bool revoke(int peer, std::uint32_t communicator, const failure& reason) {
    control_message* const msg = prepare(inbox_entry::kind::revoke);
    if (msg == nullptr) return false;
    msg->key.communicator = communicator;
    msg->reason = reason;
    post(peer, *msg);
    return true;
  }
  /// Sends the last message to `peer`. Allocates no memory. May be called only once for each peer.
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
  // Returns a message of the kind `type` from this rank, or null if there is no memory for it.
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
