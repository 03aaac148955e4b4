// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// flow_control: limits what one connection may send. It stores the credit for eager messages, the
// pending RTS and CTS, and the sends that wait for a CTS. Credit is the number of bytes that a rank
// may send eagerly, that is, without waiting for the receives. An RTS (request to send) announces a
// message that waits, and a CTS (clear to send) permits the sender to send that message. Messages
// and receives match by key (see `message_key`).

#include <colls/base/network_cost.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <algorithm>
#include <list>
#include <new>
#include <utility>

namespace colls::interprocess {

/// The number of bytes of eager messages that a rank may send on a connection before the peer
/// returns credit. The peer may have to buffer these messages until their receives are posted.
inline constexpr std::size_t credit_window = eager_window;
/// Returns the credit that an eager message of `size` bytes takes.
constexpr std::size_t credit_cost(std::size_t size) { return size + 64; }

/// A limit on the point-to-point RTS that are pending on a connection, that is, wait for a CTS.
/// While an RTS is pending, a rank may send another RTS with the same key only for a long message,
/// and only if fewer than `max_rts_ahead` point-to-point RTS of all keys are pending.
inline constexpr std::size_t max_rts_ahead = 64;

/// The largest number of RTS from one peer, with any keys, that may wait on a rank for their
/// receives. The peer sends at most half of this number for point-to-point messages. The other half
/// is for the collectives in flight.
inline constexpr std::size_t max_rts = std::size_t{2} << 20;

/// The largest number of early CTS of all keys that a rank stores per connection. An early CTS is
/// one that arrives before this rank has posted the send that the CTS permits. This happens in
/// collectives, where the peer sends the CTS when it posts the receive. A communicator runs at most
/// 64 calls at a time, so only a peer with thousands of communicators could reach this limit.
inline constexpr std::size_t max_stored_cts = std::size_t{1} << 20;

/// The flow control of one connection. This class stores the credit in both directions, the sends
/// that wait for a CTS (clear to send), and the CTS that arrived before their sends were posted. An
/// arriving CTS belongs to the oldest waiting send with the same key, or, if it is of a
/// point-to-point message, to the send whose RTS has the number in the CTS.
class flow_control {
 public:
  key_table<posted_send> collective_sends;  // sends of collectives that wait for a CTS
  key_table<posted_send> announced_sends;   // point-to-point sends whose RTS is sent or queued
  /// The number of RTS (request to send) of point-to-point messages that this rank has received.
  std::uint64_t rts_received = 0;
  /// The number of received RTS for which this rank has not posted the matching receive yet.
  std::size_t rts_waiting = 0;

  flow_control() = default;
  flow_control(const flow_control&) = delete;
  flow_control& operator=(const flow_control&) = delete;
  ~flow_control() {
    announced_sends.for_each([&](posted_send& send) {
      if (send.is_tombstone) delete &send;
    });
    stored_.for_each([](stored_cts& entry) { delete &entry; });
    while (free_list_ != nullptr) {
      delete std::exchange(free_list_, static_cast<stored_cts*>(free_list_->next));
    }
  }

  key_table<posted_send>& pending_sends(const message_key& key) {
    return key.is_point_to_point() ? announced_sends : collective_sends;
  }
  /// Finds the send that a CTS permits, removes it from the waiting sends and returns it. `number`
  /// is the number of the RTS of a point-to-point message. Returns null if there is no such send.
  posted_send* take_pending(const message_key& key, std::uint64_t number) {
    if (!key.is_point_to_point()) return collective_sends.take(key);
    const auto has_number = [&](const posted_send& send) { return send.number == number; };
    posted_send* const send = announced_sends.find_if(key, has_number);
    if (send != nullptr) announced_sends.remove(*send);
    return send;
  }
  bool any_pending() const { return !collective_sends.empty() || !announced_sends.empty(); }

  /// Returns whether the RTS of the point-to-point send `send` may be sent now. No RTS may be sent
  /// while `is_rts_limit_reached()` returns true. Otherwise the first RTS of each key may always be
  /// sent, so that a receive with any key can find its message. While that RTS is pending, another
  /// RTS of the key may be sent only under the conditions that `max_rts_ahead` describes.
  bool may_send_rts(const posted_send& send) const {
    if (is_rts_limit_reached()) return false;
    return none_pending(send.key) ||
           (send.size > eager_limit && announced_sends.size() < max_rts_ahead);
  }
  /// Returns whether the number of pending RTS of point-to-point sends has reached its limit, which
  /// is half of `max_rts`.
  bool is_rts_limit_reached() const { return announced_sends.size() >= max_rts / 2; }
  /// Defers the RTS of the blocked send `send` until the number of pending RTS is below its limit.
  /// Does nothing if an RTS of the same key is pending, because the CTS for that RTS will resume
  /// the send.
  void defer(posted_send& send) {
    if (send.is_deferred || !none_pending(send.key)) return;
    deferred_keys_.push_back(send.key);
    send.is_deferred = true;
  }
  bool any_deferred() const { return !deferred_keys_.empty(); }
  /// Removes the keys of deferred sends from their queue, oldest first, and calls `advance(key)`
  /// for each of them. Stops when the number of pending RTS has reached its limit again.
  template <class Advance>
  void resume_deferred(Advance advance) {
    while (!deferred_keys_.empty() && !is_rts_limit_reached()) {
      const message_key key = deferred_keys_.front();
      deferred_keys_.pop_front();
      if (posted_send* const next = next_blocked(key)) next->is_deferred = false;
      advance(key);
    }
  }
  /// Adds a point-to-point send to the blocked sends. A blocked send waits until its message or its
  /// RTS may be sent, and until no older send with the same key is blocked.
  void block(posted_send& send) {
    blocked_.push_back(send);
    send.is_blocked = true;
  }
  /// Returns the oldest blocked send with this key, or null.
  posted_send* next_blocked(const message_key& key) const { return blocked_.find(key); }
  void unblock(posted_send& send) {
    blocked_.remove(send);
    send.is_blocked = false;
  }
  template <class Visit>
  void for_each(Visit visit) {
    collective_sends.for_each(visit);
    announced_sends.for_each([&](posted_send& send) {
      if (!send.is_tombstone) visit(send);
    });
    blocked_.for_each(visit);
  }

  /// Puts a tombstone in the place of a cancelled send whose RTS has been sent. The peer may have
  /// answered that RTS with a CTS already. The tombstone absorbs this CTS, so that the CTS does not
  /// match a later send. Returns false if there is no memory for the tombstone.
  [[nodiscard]] bool leave_tombstone(posted_send& send) {
    auto* const tombstone = new (std::nothrow) posted_send;
    if (tombstone == nullptr) return false;
    tombstone->key = send.key;
    tombstone->number = send.number;
    tombstone->is_tombstone = tombstone->rts_sent = true;
    announced_sends.replace(send, *tombstone);
    return true;
  }
  /// Removes the tombstone of the RTS with this key and number. Called when the peer has confirmed
  /// that it will send no CTS for that RTS. Returns false if there is no such tombstone.
  bool remove_tombstone(const message_key& key, std::uint64_t number) {
    posted_send* const send = announced_sends.find_if(
        key, [&](const posted_send& s) { return s.is_tombstone && s.number == number; });
    if (send == nullptr) return false;
    announced_sends.remove(*send);
    delete send;
    return true;
  }

  /// Returns whether no send with this key waits for a CTS.
  bool none_pending(const message_key& key) const {
    const key_table<posted_send>& sends =
        key.is_point_to_point() ? announced_sends : collective_sends;
    return sends.empty() || sends.find(key) == nullptr;
  }

  // ---- credit

  /// Takes the credit for an eager message of `size` bytes. Returns false and takes nothing if the
  /// message is too long to be sent eagerly or if there is not enough credit.
  bool spend(std::size_t size) {
    if (size > eager_limit || credit_cost(size) > credit_) return false;
    credit_ -= credit_cost(size);
    return true;
  }
  /// Adds credit, up to the full window. Called when the peer has returned credit. Also called when
  /// this rank has taken credit for a message that it then does not send.
  void refill(std::uint64_t bytes) {
    credit_ += std::min<std::size_t>(bytes, credit_window - credit_);
  }
  /// Returns whether the peer had enough credit to send an eager message of `size` bytes that has
  /// just arrived. The peer has already spent credit on the messages that this rank buffers, and on
  /// the consumed messages whose credit this rank has not returned yet.
  bool is_within_window(std::size_t size) const {
    return size <= eager_limit && buffered_ + unreturned_ + credit_cost(size) <= credit_window;
  }
  /// Records that this rank now buffers an unexpected eager message of `size` bytes from the peer.
  void add_buffered(std::size_t size) { buffered_ += credit_cost(size); }
  /// Records that this rank no longer buffers an unexpected eager message of `size` bytes.
  void remove_buffered(std::size_t size) { buffered_ -= credit_cost(size); }
  /// Records that this rank has consumed an eager message of `size` bytes from the peer. Returns
  /// the amount of credit that this rank must return to the peer now. The amount is 0 until a
  /// quarter of the window has accumulated.
  std::size_t consumed(std::size_t size) {
    unreturned_ += credit_cost(size);
    return unreturned_ >= credit_window / 4 ? std::exchange(unreturned_, 0) : 0;
  }

  // ---- CTS that arrive before their sends

  /// Removes one stored CTS with this key. Returns false if there is none.
  bool take_cts(const message_key& key) {
    stored_cts* const entry = stored_.find(key);
    if (entry == nullptr) return false;
    --stored_count_;
    if (--entry->count == 0) forget(*entry);
    return true;
  }
  /// Stores a CTS that arrived before its send was posted. Returns false if `max_stored_cts` CTS
  /// are already stored.
  [[nodiscard]] bool store_cts(const message_key& key) {
    if (stored_count_ == max_stored_cts) return false;
    if (stored_cts* const known = stored_.find(key)) {
      ++known->count;
    } else {
      stored_.make_room();
      stored_cts& entry =
          free_list_ != nullptr
              ? *std::exchange(free_list_, static_cast<stored_cts*>(free_list_->next))
              : *new stored_cts;
      entry.key = key;
      entry.count = 1;
      stored_.push_back(entry);
    }
    ++stored_count_;
    return true;
  }
  void drop_cts(std::uint32_t communicator) {
    stored_.for_each([&](stored_cts& entry) {
      if (entry.key.communicator != communicator) return;
      stored_count_ -= entry.count;
      forget(entry);
    });
  }
  /// Fails, with the error `ec`, the waiting sends for which `matches(send)` returns true.
  template <class Predicate>
  void fail(std::error_code ec, Predicate matches) {
    for (key_table<posted_send>* const table : {&collective_sends, &announced_sends, &blocked_}) {
      table->for_each([&](posted_send& send) {
        if (!matches(send)) return;
        table->remove(send);
        if (send.is_tombstone) {
          delete &send;
          return;
        }
        send.awaits_cts = send.is_blocked = false;
        send.finish(ec);
      });
    }
  }

 private:
  struct stored_cts : key_table_node {
    std::size_t count = 0;
  };
  void forget(stored_cts& entry) {
    stored_.remove(entry);
    entry.next = std::exchange(free_list_, &entry);
  }

  key_table<posted_send> blocked_;
  std::list<message_key> deferred_keys_;  // the keys of deferred sends, oldest first
  std::size_t credit_ = credit_window;
  std::size_t buffered_ = 0;    // credit that the peer has spent on messages buffered here
  std::size_t unreturned_ = 0;  // credit of consumed messages that is not returned yet
  key_table<stored_cts> stored_;
  std::size_t stored_count_ = 0;     // the number of stored CTS, over all keys
  stored_cts* free_list_ = nullptr;  // unused entries, linked by `next`
};

}  // namespace colls::interprocess
