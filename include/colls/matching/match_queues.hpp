// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pairing: receives that wait for their messages, and messages that wait for their receives.

#include <colls/matching/posted_receive.hpp>

#include <utility>

namespace colls {

/// First in, first out for each key. Receives of point to point that name no source are listed by
/// their tag alone, and so are its messages, beside their own key. A node is listed once: a receive
/// that `listed` says so of, a message that was kept and not taken.
class pairing {
 public:
  pairing() = default;
  pairing(const pairing&) = delete;
  pairing& operator=(const pairing&) = delete;

  // ---- receives

  /// A receive wants its message: the arrival that it pairs with (no longer listed), or null, and
  /// then the receive is listed. The caller has checked that the communicator is good. Of an arrival
  /// whose bytes are still to come the receive is listed, and asks for it, without memory: where
  /// there is none the arrival stays for the next receive.
  arrival* post(posted& receive) {
    if (!receive.key.is_point_to_point()) {
      receives_.make_room();
      arrival* const message = arrivals_.take(receive.key);
      if (message == nullptr) list(receive);
      return message;
    }
    direct_receives_.make_room();
    arrival* const message = find_direct_arrival(receive);
    if (message == nullptr) {
      list(receive);
      return nullptr;
    }
    if (!message->buffered) granted_receives_.make_room();
    return taken(message);
  }
  void list(posted& receive) {
    if (receive.key.is_point_to_point()) {
      direct_receives_.push_back(receive);
      receive.posted_at = ++posted_;
      receive.record->receive = &receive;
    } else {
      receives_.push_back(receive);
    }
    receive.listed = true;
  }
  void unlist(posted& receive) {
    receive.listed = false;
    if (!receive.key.is_point_to_point()) return receives_.remove(receive);
    (receive.granted ? granted_receives_ : direct_receives_).remove(receive);
    if (receive.record->receive == &receive) receive.record->receive = nullptr;
  }
  /// A listed receive of point to point has asked for a message of that source, and takes no other.
  void grant(posted& receive, std::int32_t source) {
    granted_receives_.make_room();
    direct_receives_.remove(receive);
    receive.takes_any = receive.key.peer == posted::any_source;
    receive.key.peer = source;
    receive.granted = true;
    granted_receives_.push_back(receive);
  }
  /// That message does not come: the receive stands where it was posted.
  void take_grant_back(posted& receive) {
    direct_receives_.make_room();
    granted_receives_.remove(receive);
    receive.granted = false;
    if (std::exchange(receive.takes_any, false)) receive.key.peer = posted::any_source;
    direct_receives_.insert(
        receive, [&](const posted& other) { return other.posted_at > receive.posted_at; });
  }
  /// Withdraws a receive that has not ended: nothing touches its buffer afterwards.
  void withdraw(posted& receive) {
    if (receive.listed) unlist(receive);
    if (receive.held_by != nullptr) std::exchange(receive.held_by, nullptr)->abandon(receive);
  }
  /// Ends with `ec` those of a communicator that are listed.
  void fail_receives(std::uint32_t communicator, std::error_code ec) {
    for (key_table<posted>* const table : {&receives_, &direct_receives_, &granted_receives_}) {
      table->each([&](posted& receive) {
        if (receive.key.communicator != communicator) return;
        unlist(receive);
        receive.finish(ec);
      });
    }
  }

  const key_table<posted>& receives() const { return receives_; }
  /// How many wait for their messages.
  std::size_t waiting() const {
    return receives_.size() + direct_receives_.size() + granted_receives_.size();
  }
  /// Calls `visit` for every receive that waits for its message.
  template <class Visit>
  void each_waiting(Visit visit) {
    receives_.each(visit);
    direct_receives_.each(visit);
    granted_receives_.each(visit);
  }
  /// Calls `visit` for those of one operation.
  template <class Visit>
  void each_waiting_of(const operation_record& record, Visit visit) {
    if (record.receive != nullptr) visit(*record.receive);
    if (record.hash == 0) return;
    receives_.each([&](posted& receive) {
      if (receive.record == &record) visit(receive);
    });
  }
  /// Whether `test` is true of each of those; it asks no further once it is not.
  template <class Test>
  bool all_waiting(Test test) {
    return receives_.all_of(test) && direct_receives_.all_of(test) &&
           granted_receives_.all_of(test);
  }
  /// A good communicator on which a receive waits for `peer`, or null.
  communicator_state* waiting_for(int peer) {
    communicator_state* found = nullptr;
    all_waiting([&](const posted& receive) {
      communicator_state* const of = receive.record->communicator;
      if (receive.key.peer == peer && !of->failed()) found = of;
      return found == nullptr;
    });
    return found;
  }

  /// The receive that a message belongs to (no longer listed), or null. A point-to-point message
  /// goes to the oldest receive that names its source or any, and has granted none.
  posted* take(const message_key& key) {
    if (key.is_point_to_point()) return taken(oldest_for(key));
    posted* const receive = receives_.take(key);
    if (receive != nullptr) receive->listed = false;
    return receive;
  }
  /// The point-to-point receive that asked for this message, no longer listed.
  posted* take_granted(const message_key& key) { return taken(granted_receives_.find(key)); }
  /// The receive that a message which is only announced belongs to, still listed: the oldest that
  /// has granted none yet.
  posted* peek(const message_key& key) const {
    if (key.is_point_to_point()) return oldest_for(key);
    return receives_.find_if(key, [](const posted& receive) { return !receive.granted; });
  }
  /// The point-to-point receive that asked for the message of that number, still listed, or null.
  posted* asker(const message_key& key, std::uint64_t number) const {
    return granted_receives_.find_if(
        key, [=](const posted& receive) { return receive.number == number; });
  }
  /// The oldest receive of that key, granted or not, still listed.
  posted* first(const message_key& key) const { return receives_.find(key); }

  // ---- messages

  /// A message that nobody has asked for yet.
  void keep(arrival& message) {
    if (!message.key.is_point_to_point()) return arrivals_.push_back(message);
    direct_arrivals_.make_room();
    message.by_tag.key = of_any_source(message.key);
    message.by_tag.message = &message;
    arrivals_by_tag_.push_back(message.by_tag);
    direct_arrivals_.push_back(message);
  }
  void forget(arrival& message) {
    if (!message.key.is_point_to_point()) return arrivals_.remove(message);
    direct_arrivals_.remove(message);
    arrivals_by_tag_.remove(message.by_tag);
  }
  /// The oldest message of point to point of that key that `which` picks, no longer listed, or null.
  template <class Which>
  arrival* take_arrival(const message_key& key, Which which) {
    return taken(direct_arrivals_.find_if(key, which));
  }
  /// The message that a listed receive of point to point pairs with (no longer listed, nor is the
  /// receive then), or null.
  arrival* pair_again(posted& receive) {
    arrival* const message = taken(find_direct_arrival(receive));
    if (message != nullptr) unlist(receive);
    return message;
  }
  /// The message of a collective that came before its receive, or null.
  arrival* arrived(const message_key& key) const { return arrivals_.find(key); }
  /// Whether some message of a collective came before its receive.
  bool has_arrivals() const { return !arrivals_.empty(); }
  /// Messages that came before their receives.
  std::size_t arrivals() const { return arrivals_.size() + direct_arrivals_.size(); }
  /// Calls `visit` for each of those of collectives; it may forget the one it is given.
  template <class Visit>
  void each_arrival(Visit visit) {
    arrivals_.each(visit);
  }
  /// Drops the messages of `count` communicators, which get no others, in one pass, and calls
  /// `tell(key)` for each: what that tells may withdraw others. Those point to point whose senders
  /// have gone on go without a word.
  template <class Tell>
  void drop_arrivals_of(std::uint32_t first, std::uint32_t count, Tell tell) {
    const auto is_of_it = [=](const arrival& message) {
      return message.key.communicator - first < count;
    };
    for (key_table<arrival>* const table : {&direct_arrivals_, &arrivals_}) {
      std::size_t home = 0;
      while (arrival* const message = table->find_from(home, is_of_it)) {
        forget(*message);
        const message_key key = message->key;
        const bool is_over = message->buffered && key.is_point_to_point();
        message->drop();
        if (!is_over) tell(key);
      }
    }
  }
  /// Drops them all without a word: also those of communicators that were never made here.
  void drop_arrivals() {
    for (key_table<arrival>* const table : {&direct_arrivals_, &arrivals_}) {
      table->each([&](arrival& message) {
        forget(message);
        message.drop();
      });
    }
  }

 private:
  static message_key of_any_source(message_key key) {
    key.peer = posted::any_source;
    return key;
  }
  // Of the receives that have granted nothing.
  posted* oldest_for(const message_key& key) const {
    posted* const named = direct_receives_.find(key);
    posted* const any = direct_receives_.find(of_any_source(key));
    if (named == nullptr || any == nullptr) return named != nullptr ? named : any;
    return named->posted_at < any->posted_at ? named : any;
  }
  posted* taken(posted* receive) {
    if (receive != nullptr) unlist(*receive);
    return receive;
  }
  arrival* taken(arrival* message) {
    if (message != nullptr) forget(*message);
    return message;
  }
  arrival* find_direct_arrival(const posted& receive) const {
    if (receive.key.peer != posted::any_source) return direct_arrivals_.find(receive.key);
    const arrival::of_any* const first = arrivals_by_tag_.find(receive.key);
    return first != nullptr ? first->message : nullptr;
  }

  key_table<posted> receives_;
  key_table<arrival> arrivals_;
  key_table<posted> direct_receives_;  // point to point
  key_table<posted> granted_receives_;
  key_table<arrival> direct_arrivals_;
  key_table<arrival::of_any> arrivals_by_tag_;
  std::uint64_t posted_ = 0;
};

}  // namespace colls
