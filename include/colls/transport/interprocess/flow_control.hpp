// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// flow_control: the credit for eager messages, the CTS and RTS of one connection, and the sends
// that wait for them.

#include <colls/base/network_cost.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <algorithm>
#include <list>
#include <new>
#include <utility>

namespace colls::interprocess {

/// Bytes of eager messages that a rank may send on a connection before the peer returns credit. The
/// peer may have to buffer them until receives are posted.
inline constexpr std::size_t credit_window = eager_window;
/// Credit that an eager message of `size` bytes takes.
constexpr std::size_t credit_cost(std::size_t size) { return size + 64; }

/// Most RTS of long point-to-point messages that may be pending on a connection, of all keys.
inline constexpr std::size_t max_rts_ahead = 64;

/// Most RTS that may wait on a connection for their receives, of all keys. A rank sends half of
/// them for point-to-point messages, and some for the collectives in flight.
inline constexpr std::size_t max_rts = std::size_t{2} << 20;

/// Most CTS of a peer that may wait on a connection for their sends, of all keys. A rank sends the
/// CTS of a collective when it posts the receive. A communicator runs at most 64 calls at a time,
/// so the limit is that of thousands of communicators.
inline constexpr std::size_t max_stored_cts = std::size_t{1} << 20;

/// The flow control of one connection: the credit in both directions, CTS that arrived before their
/// sends, and sends that wait for a CTS. The k-th CTS of a key belongs to the k-th waiting send of
/// that key.
class flow_control {
 public:
  key_table<posted_send> collective_sends;  // wait for a CTS
  key_table<posted_send> announced_sends;   // point to point: their RTS is sent or queued
  /// RTS of point-to-point messages that the peer has sent.
  std::uint64_t rts_received = 0;
  /// RTS of the peer that wait here for their receives.
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
  bool any_pending() const { return !collective_sends.empty() || !announced_sends.empty(); }

  /// Whether the RTS of a point-to-point send may go now. The peer holds a limited number in all
  /// and at least one of each key, so that a receive of any key finds its message. With very many
  /// keys some RTS wait (see `defer`).
  bool may_send_rts(const posted_send& send) const {
    if (is_rts_limit_reached()) return false;
    return none_pending(send.key) ||
           (send.size > eager_limit && announced_sends.size() < max_rts_ahead);
  }
  /// Whether so many RTS are pending that no other one may be sent.
  bool is_rts_limit_reached() const { return announced_sends.size() >= max_rts / 2; }
  /// Lets the RTS of a blocked send wait until the number of pending RTS falls. Only for a key of
  /// which no RTS is pending, whose CTS would resume it.
  void defer(posted_send& send) {
    if (send.is_deferred || !none_pending(send.key)) return;
    deferred_keys_.push_back(send.key);
    send.is_deferred = true;
  }
  bool any_deferred() const { return !deferred_keys_.empty(); }
  /// Calls `advance(key)` for the deferred keys, in their order, while another RTS may be sent.
  template <class Advance>
  void resume_deferred(Advance advance) {
    while (!deferred_keys_.empty() && !is_rts_limit_reached()) {
      const message_key key = deferred_keys_.front();
      deferred_keys_.pop_front();
      if (posted_send* const next = next_blocked(key)) next->is_deferred = false;
      advance(key);
    }
  }
  /// Queues a point-to-point send behind others of its key.
  void block(posted_send& send) {
    blocked_.push_back(send);
    send.is_blocked = true;
  }
  /// The first blocked send of that key, or null.
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

  /// Replaces a cancelled send, whose RTS was sent, by a tombstone, which absorbs the CTS that may
  /// be on its way. False: there is no memory for it.
  [[nodiscard]] bool leave_tombstone(posted_send& send) {
    auto* const tombstone = new (std::nothrow) posted_send;
    if (tombstone == nullptr) return false;
    tombstone->key = send.key;
    tombstone->number = send.number;
    tombstone->is_tombstone = tombstone->rts_sent = true;
    announced_sends.replace(send, *tombstone);
    return true;
  }
  /// Removes the tombstone of that RTS, for which the peer will send no CTS. False: there is no
  /// such tombstone.
  bool remove_tombstone(const message_key& key, std::uint64_t number) {
    posted_send* const send = announced_sends.find_if(
        key, [&](const posted_send& s) { return s.is_tombstone && s.number == number; });
    if (send == nullptr) return false;
    announced_sends.remove(*send);
    delete send;
    return true;
  }

  /// Whether no send of that key waits for a CTS.
  bool none_pending(const message_key& key) const {
    const key_table<posted_send>& sends =
        key.is_point_to_point() ? announced_sends : collective_sends;
    return sends.empty() || sends.find(key) == nullptr;
  }

  // ---- credit

  /// Takes the credit for an eager message of `size` bytes. False: it may not be sent eagerly.
  bool spend(std::size_t size) {
    if (size > eager_limit || credit_cost(size) > credit_) return false;
    credit_ -= credit_cost(size);
    return true;
  }
  /// The peer has returned credit.
  void refill(std::uint64_t bytes) {
    credit_ += std::min<std::size_t>(bytes, credit_window - credit_);
  }
  /// Whether the peer had credit for an eager message of `size` bytes. The credit of messages that
  /// are buffered here, or was not returned yet, is spent.
  bool is_within_window(std::size_t size) const {
    return size <= eager_limit && buffered_ + unreturned_ + credit_cost(size) <= credit_window;
  }
  /// An unexpected message of the peer is buffered here.
  void add_buffered(std::size_t size) { buffered_ += credit_cost(size); }
  /// It is buffered no more.
  void remove_buffered(std::size_t size) { buffered_ -= credit_cost(size); }
  /// An eager message of the peer was consumed. Returns how much credit to return to the peer now;
  /// 0 until a quarter of the window has gathered.
  std::size_t consumed(std::size_t size) {
    unreturned_ += credit_cost(size);
    return unreturned_ >= credit_window / 4 ? std::exchange(unreturned_, 0) : 0;
  }

  // ---- CTS that arrive before their sends

  /// Takes a stored CTS. False: there is none.
  bool take_cts(const message_key& key) {
    stored_cts* const entry = stored_.find(key);
    if (entry == nullptr) return false;
    --stored_count_;
    if (--entry->count == 0) forget(*entry);
    return true;
  }
  /// False: the peer sends more CTS than a rank of colls does.
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
  /// Ends the waiting sends for which `matches(send)`.
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
  std::list<message_key> deferred_keys_;  // of blocked sends
  std::size_t credit_ = credit_window;
  std::size_t buffered_ = 0;    // credit of the peer spent on messages buffered here
  std::size_t unreturned_ = 0;  // credit of consumed messages that was not returned yet
  key_table<stored_cts> stored_;
  std::size_t stored_count_ = 0;     // of all keys
  stored_cts* free_list_ = nullptr;  // linked by `next`
};

}  // namespace colls::interprocess
