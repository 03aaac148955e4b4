// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// match_queues: the queues of posted receives and the queues of unexpected messages. A message is
// unexpected if it arrived before its receive was posted.
//
// Before a long message, the sender sends an RTS (request to send). The receiver answers with a CTS
// (clear to send). A receive for which a CTS was sent is called cleared.

#include <colls/matching/posted_receive.hpp>

#include <utility>

namespace colls {

/// The queues with which a rank matches messages and receives. Each key has its own queue, which is
/// first in, first out. The key of a point-to-point message contains its source and its tag. The
/// key of a point-to-point receive from any source contains no source. Therefore an unexpected
/// point-to-point message is in two queues: one for its key, and one for the same key without the
/// source. A receive is in at most one queue. Its member `queued` tells whether it is in a queue.
/// Receives from any tag have a queue of their own, and look for their message among all unexpected
/// point-to-point messages.
///
/// A probe waits in the queues like a receive. The message that matches it stays unexpected: it
/// leaves the queues and belongs to the probe until a receive takes it (`taken`) or its owner
/// discards it.
class match_queues {
 public:
  match_queues() = default;
  match_queues(const match_queues&) = delete;
  match_queues& operator=(const match_queues&) = delete;

  // ---- receives

  /// Posts a receive. If an unexpected message matches the receive, removes that message from its
  /// queue and returns it. Otherwise queues the receive and returns null. The communicator of the
  /// receive must not have failed.
  ///
  /// The returned object may be the RTS of a message that has not arrived yet. In this case the
  /// caller must enqueue the receive and mark the receive as cleared, which means that this rank
  /// has sent the CTS (clear to send). `post` has already reserved the memory for these two steps.
  /// If memory runs out, `post` throws an exception and the message stays in its queue.
  unexpected_message* post(posted_receive& receive) {
    if (!receive.key.is_point_to_point()) {
      receives_.make_room();
      unexpected_message* const message = unexpected_.take(receive.key);
      if (message == nullptr) enqueue(receive);
      return message;
    }
    if (receive.takes_probed) return take_over(receive);
    p2p_receives_.make_room();
    unexpected_message* const message = find_p2p_unexpected(receive);
    if (message == nullptr) {
      enqueue(receive);
      return nullptr;
    }
    if (!message->buffered) cleared_receives_.make_room();
    set_tag(receive, message->key.sequence);
    return dequeue_and_return(message);
  }
  /// Looks for an unexpected message that matches `probe`, which is not queued. If there is one,
  /// takes it off the queues, stores it in `probe.taken` and returns true.
  bool match_probe(posted_receive& probe) {
    unexpected_message* const message = dequeue_and_return(find_p2p_unexpected(probe));
    if (message == nullptr) return false;
    give(*message, probe);
    return true;
  }
  /// Makes `to` the pointer that owns the message `from`, and sets `from` to null. Does nothing if
  /// `from` is null.
  static void move_ownership(unexpected_message*& from, unexpected_message*& to) noexcept {
    to = std::exchange(from, nullptr);
    if (to != nullptr) to->holder = &to;
  }
  /// Discards the message that `owned` owns, if there is one, and sets `owned` to null.
  void discard(unexpected_message*& owned) noexcept {
    unexpected_message* const message = owned;
    if (message == nullptr) return;
    disown(*message);
    message->discard();
  }
  void enqueue(posted_receive& receive) {
    if (receive.key.is_point_to_point()) {
      if (receive.key.sequence == posted_receive::any_tag) {
        any_tag_receives_.push_back(receive);
      } else {
        p2p_receives_.push_back(receive);
      }
      receive.post_order = ++post_count_;
      receive.record->receive = &receive;
      probes_ += receive.is_probe ? 1 : 0;
    } else {
      receives_.push_back(receive);
    }
    receive.queued = true;
  }
  void dequeue(posted_receive& receive) {
    receive.queued = false;
    if (!receive.key.is_point_to_point()) return receives_.remove(receive);
    probes_ -= receive.is_probe ? 1 : 0;
    receive.cleared ? cleared_receives_.remove(receive) : remove_uncleared(receive);
    if (receive.record->receive == &receive) receive.record->receive = nullptr;
  }
  /// Marks a queued point-to-point receive as cleared. Called when this rank answers the RTS of a
  /// message with the key `message` with a CTS. Afterwards the receive matches only that message.
  void set_cleared(posted_receive& receive, const message_key& message) {
    cleared_receives_.make_room();
    remove_uncleared(receive);
    receive.was_any_source = receive.key.peer == posted_receive::any_source;
    receive.key.peer = message.peer;
    set_tag(receive, message.sequence);
    receive.cleared = true;
    cleared_receives_.push_back(receive);
  }
  /// Undoes `set_cleared`: marks the receive as not cleared and puts it back in its former place in
  /// its queue. Called when the sender has cancelled the message for which the receive was cleared.
  void unset_cleared(posted_receive& receive) {
    p2p_receives_.make_room();
    cleared_receives_.remove(receive);
    receive.cleared = false;
    if (std::exchange(receive.was_any_source, false)) receive.key.peer = posted_receive::any_source;
    const auto is_younger = [&](const posted_receive& other) {
      return other.post_order > receive.post_order;
    };
    if (std::exchange(receive.was_any_tag, false)) {
      receive.key.sequence = posted_receive::any_tag;
      posted_receive* next = any_tag_receives_.front();
      while (next != nullptr && !is_younger(*next)) next = any_tag_receives_.next(*next);
      any_tag_receives_.insert_before(next, receive);
    } else {
      p2p_receives_.insert(receive, is_younger);
    }
  }
  /// Withdraws a receive that has not completed. Afterwards nothing writes to the buffer of the
  /// receive.
  void withdraw(posted_receive& receive) {
    if (receive.queued) dequeue(receive);
    if (receive.writer != nullptr) std::exchange(receive.writer, nullptr)->abandon(receive);
  }
  /// Completes all queued receives of a communicator with the error `ec`.
  void fail_receives(std::uint32_t communicator, std::error_code ec) {
    for_each_posted([&](posted_receive& receive) {
      if (receive.key.communicator != communicator) return;
      dequeue(receive);
      receive.finish(ec);
    });
  }

  const key_table<posted_receive>& receives() const { return receives_; }
  /// Returns the number of queued receives.
  std::size_t posted_count() const {
    std::size_t any_tag_count = 0;
    any_tag_receives_.for_each([&](const posted_receive&) { ++any_tag_count; });
    return receives_.size() + p2p_receives_.size() + cleared_receives_.size() + any_tag_count;
  }
  /// Calls `visitor` for every queued receive. `visitor` may remove this receive from its queue.
  template <class Visitor>
  void for_each_posted(Visitor visitor) {
    receives_.for_each(visitor);
    p2p_receives_.for_each(visitor);
    cleared_receives_.for_each(visitor);
    any_tag_receives_.for_each(visitor);
  }
  /// Calls `visitor` for each queued receive of the operation `record`.
  template <class Visitor>
  void for_each_posted_by(const operation_record& record, Visitor visitor) {
    if (record.receive != nullptr) visitor(*record.receive);
    if (record.hash == 0) return;
    receives_.for_each([&](posted_receive& receive) {
      if (receive.record == &record) visitor(receive);
    });
  }
  /// Returns whether `predicate` holds for all queued receives. Stops at the first receive for
  /// which it does not hold.
  template <class Predicate>
  bool all_posted(Predicate predicate) {
    bool result = receives_.all_of(predicate) && p2p_receives_.all_of(predicate) &&
                  cleared_receives_.all_of(predicate);
    for (posted_receive* receive = any_tag_receives_.front(); result && receive != nullptr;) {
      result = predicate(*receive);
      receive = any_tag_receives_.next(*receive);
    }
    return result;
  }
  /// Returns a communicator in which a queued receive waits for a message from the rank `peer`.
  /// Ignores communicators that have failed. Returns null if there is no such communicator.
  communicator_state* communicator_waiting_for(int peer) {
    communicator_state* result = nullptr;
    all_posted([&](const posted_receive& receive) {
      communicator_state* const communicator = receive.record->communicator;
      if (receive.key.peer == peer && !communicator->failed()) result = communicator;
      return result == nullptr;
    });
    return result;
  }

  /// Finds the receive for a message with this key, removes the receive from its queue and returns
  /// it. Returns null if there is no such receive. A point-to-point message matches the oldest
  /// uncleared receive from its source or from any source, with its tag or with any tag. If that is
  /// a probe, returns null, because the message is then unexpected.
  posted_receive* take(const message_key& key) {
    if (key.is_point_to_point()) {
      posted_receive* const receive = dequeue_and_return(oldest_receive(key));
      if (receive != nullptr) set_tag(*receive, key.sequence);
      return receive;
    }
    posted_receive* const receive = receives_.take(key);
    if (receive != nullptr) receive->queued = false;
    return receive;
  }
  /// Removes from its queue a receive that `peek` has returned for a message with this key.
  void take(posted_receive& receive, const message_key& key) {
    dequeue(receive);
    if (key.is_point_to_point()) set_tag(receive, key.sequence);
  }
  /// Finds the oldest point-to-point receive that was cleared for a message with this key, removes
  /// it from its queue and returns it. Returns null if there is no such receive.
  posted_receive* take_cleared(const message_key& key) {
    return dequeue_and_return(cleared_receives_.find(key));
  }
  /// Returns the oldest uncleared receive that matches an RTS with this key, or null if there is
  /// none, or if it is a probe. The receive stays queued.
  posted_receive* peek(const message_key& key) const {
    if (key.is_point_to_point()) return oldest_receive(key);
    return receives_.find_if(key, [](const posted_receive& receive) { return !receive.cleared; });
  }
  /// Returns the point-to-point receive that was cleared for one particular message. `key` and
  /// `number` identify this message. Returns null if there is no such receive. The receive stays
  /// queued.
  posted_receive* find_cleared(const message_key& key, std::uint64_t number) const {
    return cleared_receives_.find_if(
        key, [=](const posted_receive& receive) { return receive.number == number; });
  }
  /// Returns the oldest queued receive that has this key and belongs to a collective, whether or
  /// not the receive is cleared. Returns null if there is no such receive.
  posted_receive* first(const message_key& key) const { return receives_.find(key); }

  // ---- messages

  /// Adds a message to the queues of unexpected messages. Called when no posted receive matches the
  /// message. If a probe matches the message, gives it to the probe, which then completes.
  void add_unexpected(unexpected_message& message) {
    if (!message.key.is_point_to_point()) return unexpected_.push_back(message);
    if (probes_ != 0) {
      posted_receive* const probe = oldest_uncleared(message.key);
      if (probe != nullptr && probe->is_probe) {
        dequeue(*probe);
        give(message, *probe);
        probe->done->post();
        return;
      }
    }
    p2p_unexpected_.make_room();
    message.any_source_node.key = any_source_key(message.key);
    message.any_source_node.message = &message;
    unexpected_by_tag_.push_back(message.any_source_node);
    p2p_unexpected_.push_back(message);
    arrived_.push_back(message);
  }
  /// Removes a message from the queues, or from the probe that owns it.
  void remove_unexpected(unexpected_message& message) {
    if (!message.key.is_point_to_point()) return unexpected_.remove(message);
    if (message.holder != nullptr) return disown(message);
    p2p_unexpected_.remove(message);
    unexpected_by_tag_.remove(message.any_source_node);
    arrived_.remove(message);
  }
  /// Finds the oldest unexpected point-to-point message that has this key and for which `predicate`
  /// holds, removes it from its queue, or from the probe that owns it, and returns it. Returns null
  /// if there is no such message.
  template <class Predicate>
  unexpected_message* take_unexpected(const message_key& key, Predicate predicate) {
    unexpected_message* found = p2p_unexpected_.find_if(key, predicate);
    if (found == nullptr) {
      owned_.for_each([&](unexpected_message& message) {
        if (found == nullptr && message.key == key && predicate(message)) found = &message;
      });
    }
    return dequeue_and_return(found);
  }
  /// Looks for an unexpected message that matches `receive`, a queued point-to-point receive. If
  /// there is one, removes the message and the receive from their queues and returns the message.
  /// Otherwise returns null, and the receive stays queued.
  unexpected_message* rematch(posted_receive& receive) {
    unexpected_message* const message = dequeue_and_return(find_p2p_unexpected(receive));
    if (message == nullptr) return nullptr;
    dequeue(receive);
    set_tag(receive, message->key.sequence);
    return message;
  }
  /// Returns the oldest unexpected message that has this key and belongs to a collective. Returns
  /// null if there is no such message.
  unexpected_message* find_unexpected(const message_key& key) const {
    return unexpected_.find(key);
  }
  /// Returns whether there is an unexpected message of a collective.
  bool has_unexpected() const { return !unexpected_.empty(); }
  /// Returns the number of unexpected messages.
  std::size_t unexpected_count() const { return unexpected_.size() + p2p_unexpected_.size(); }
  /// Calls `visitor(message)` for each unexpected message of a collective. `visitor` may remove
  /// `message` from its queue.
  template <class Visitor>
  void for_each_unexpected(Visitor visitor) {
    unexpected_.for_each(visitor);
  }
  /// Drops the unexpected messages of the communicators with the ids from `first` to
  /// `first + count - 1`, also those that probes own. Calls `report(key)` for each dropped message,
  /// except for a point-to-point message whose send has already completed. `report` may remove
  /// other messages from the queues. It must not add messages of these communicators, because this
  /// function searches each queue only once.
  template <class Report>
  void drop_unexpected_of(std::uint32_t first, std::uint32_t count, Report report) {
    const auto is_affected = [=](const unexpected_message& message) {
      return message.key.communicator - first < count;
    };
    const auto drop = [&](unexpected_message& message) {
      remove_unexpected(message);
      const message_key key = message.key;
      const bool has_ended = message.buffered && key.is_point_to_point();
      message.drop();
      if (!has_ended) report(key);
    };
    while (unexpected_message* const message = first_owned(is_affected)) drop(*message);
    for (key_table<unexpected_message>* const table : {&p2p_unexpected_, &unexpected_}) {
      std::size_t bucket = 0;
      while (unexpected_message* const message = table->find_next(bucket, is_affected)) {
        drop(*message);
      }
    }
  }
  /// Drops the unexpected messages of all communicators, including those that were never created on
  /// this rank. Does not report the dropped messages.
  void drop_unexpected() {
    while (unexpected_message* const message = owned_.front()) {
      disown(*message);
      message->drop();
    }
    for (key_table<unexpected_message>* const table : {&p2p_unexpected_, &unexpected_}) {
      table->for_each([&](unexpected_message& message) {
        remove_unexpected(message);
        message.drop();
      });
    }
  }

 private:
  static message_key any_source_key(message_key key) {
    key.peer = posted_receive::any_source;
    return key;
  }
  static bool matches_any_tag(const message_key& receive, const message_key& message) {
    return receive.communicator == message.communicator &&
           (receive.peer == message.peer || receive.peer == posted_receive::any_source);
  }
  // Writes the tag of the message that has matched into the key of a receive from any tag.
  static void set_tag(posted_receive& receive, std::uint64_t tag) {
    if (receive.key.sequence != posted_receive::any_tag) return;
    receive.key.sequence = tag;
    receive.was_any_tag = true;
  }
  // Returns the oldest point-to-point receive or probe that matches `key` and for which no CTS has
  // been sent. Returns null if there is none.
  posted_receive* oldest_uncleared(const message_key& key) const {
    const auto older = [](posted_receive* a, posted_receive* b) {
      if (a == nullptr || b == nullptr) return a != nullptr ? a : b;
      return a->post_order < b->post_order ? a : b;
    };
    posted_receive* const named =
        older(p2p_receives_.find(key), p2p_receives_.find(any_source_key(key)));
    posted_receive* any = any_tag_receives_.front();
    while (any != nullptr && !matches_any_tag(any->key, key)) any = any_tag_receives_.next(*any);
    return older(named, any);
  }
  posted_receive* oldest_receive(const message_key& key) const {
    posted_receive* const receive = oldest_uncleared(key);
    return receive != nullptr && receive->is_probe ? nullptr : receive;
  }
  void remove_uncleared(posted_receive& receive) {
    if (receive.key.sequence == posted_receive::any_tag) {
      any_tag_receives_.remove(receive);
    } else {
      p2p_receives_.remove(receive);
    }
  }
  // Makes `probe` the owner of a message that is not in the queues.
  void give(unexpected_message& message, posted_receive& probe) {
    owned_.push_back(message);
    probe.taken = &message;
    message.holder = &probe.taken;
  }
  void disown(unexpected_message& message) {
    owned_.remove(message);
    *std::exchange(message.holder, nullptr) = nullptr;
  }
  // Returns the message that `receive` takes over from a probe. Its owner is set to null.
  unexpected_message* take_over(posted_receive& receive) {
    unexpected_message* const message = receive.taken;
    if (!message->buffered) {
      p2p_receives_.make_room();
      cleared_receives_.make_room();
    }
    disown(*message);
    return message;
  }
  template <class Predicate>
  unexpected_message* first_owned(Predicate predicate) {
    unexpected_message* message = owned_.front();
    while (message != nullptr && !predicate(*message)) message = owned_.next(*message);
    return message;
  }
  posted_receive* dequeue_and_return(posted_receive* receive) {
    if (receive != nullptr) dequeue(*receive);
    return receive;
  }
  unexpected_message* dequeue_and_return(unexpected_message* message) {
    if (message != nullptr) remove_unexpected(*message);
    return message;
  }
  unexpected_message* find_p2p_unexpected(const posted_receive& receive) const {
    if (receive.key.sequence == posted_receive::any_tag) {
      unexpected_message* message = arrived_.front();
      while (message != nullptr && !matches_any_tag(receive.key, message->key)) {
        message = arrived_.next(*message);
      }
      return message;
    }
    if (receive.key.peer != posted_receive::any_source) return p2p_unexpected_.find(receive.key);
    const unexpected_message::tag_node* const first = unexpected_by_tag_.find(receive.key);
    return first != nullptr ? first->message : nullptr;
  }

  key_table<posted_receive> receives_;  // receives of collectives
  key_table<unexpected_message> unexpected_;
  key_table<posted_receive> p2p_receives_;  // point-to-point receives that are not cleared
  key_table<posted_receive> cleared_receives_;
  key_table<unexpected_message> p2p_unexpected_;
  key_table<unexpected_message::tag_node> unexpected_by_tag_;
  intrusive_list<unexpected_message, &unexpected_message::links> arrived_;
  intrusive_list<unexpected_message, &unexpected_message::links> owned_;  // by probes
  intrusive_list<posted_receive, &posted_receive::any_tag_links> any_tag_receives_;
  std::uint64_t post_count_ = 0;
  std::size_t probes_ = 0;  // the number of queued probes
};

}  // namespace colls
