// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pairing: receives that wait for their messages, and messages that wait for their receives.

#include <colls/match/posted.hpp>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace colls {

/// First in, first out for each key. Point-to-point receives have one list, in posting order, since
/// some name no source; so have their messages, in the order of arrival. A node is in one list at
/// most: a receive that `listed` says so of, a message that was kept and not taken.
class pairing {
 public:
  pairing() = default;
  pairing(const pairing&) = delete;
  pairing& operator=(const pairing&) = delete;

  // ---- receives

  /// A receive wants its message: the arrival that it pairs with (no longer listed), or null, and
  /// then the receive is listed. The caller has checked that the communicator is good.
  arrival* post(posted& receive) {
    arrival* const message = receive.key.is_point_to_point() ? take_direct_arrival(receive)
                                                             : arrivals_.take(receive.key);
    if (message == nullptr) list(receive);
    return message;
  }
  void list(posted& receive) {
    if (receive.key.is_point_to_point()) {
      direct_receives_.push_back(&receive);
    } else {
      receives_.push_back(receive);
    }
    receive.listed = true;
  }
  void unlist(posted& receive) {
    receive.listed = false;
    if (receive.key.is_point_to_point()) {
      std::erase(direct_receives_, &receive);
    } else {
      receives_.remove(receive);
    }
  }
  /// Withdraws a receive that has not ended: nothing touches its buffer afterwards.
  void withdraw(posted& receive) {
    if (receive.listed) unlist(receive);
    if (receive.held_by != nullptr) std::exchange(receive.held_by, nullptr)->abandon(receive);
  }
  /// Ends with `ec` those of a communicator that are listed.
  void fail_receives(std::uint32_t communicator, std::error_code ec) {
    const auto is_of_it = [&](const posted& receive) {
      return receive.key.communicator == communicator;
    };
    const auto end = [&](posted& receive) {
      receive.listed = false;
      receive.finish(ec);
    };
    receives_.each([&](posted& receive) {
      if (!is_of_it(receive)) return;
      receives_.remove(receive);
      end(receive);
    });
    std::erase_if(direct_receives_, [&](posted* receive) {
      if (!is_of_it(*receive)) return false;
      end(*receive);
      return true;
    });
  }

  const key_table<posted>& receives() const { return receives_; }
  /// Calls `visit` for every receive that waits for its message.
  template <class Visit>
  void each_waiting(Visit visit) {
    receives_.each(visit);
    for (posted* receive : direct_receives_) visit(*receive);
  }
  /// Whether `test` is true of each of those; it asks no further once it is not.
  template <class Test>
  bool all_waiting(Test test) {
    return receives_.all_of(test) &&
           std::all_of(direct_receives_.begin(), direct_receives_.end(),
                       [&](const posted* receive) { return test(*receive); });
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
    if (key.is_point_to_point()) {
      return take_direct(
          [&](const posted& receive) { return fits(receive, key) && !receive.granted; });
    }
    posted* const receive = receives_.take(key);
    if (receive != nullptr) receive->listed = false;
    return receive;
  }
  /// The point-to-point receive that asked for this message, no longer listed.
  posted* take_granted(const message_key& key) {
    return take_direct(
        [&](const posted& receive) { return receive.granted && receive.key == key; });
  }
  /// The receive that a message which is only announced belongs to, still listed: the oldest that
  /// has granted none yet.
  posted* peek(const message_key& key) const {
    if (!key.is_point_to_point()) {
      return receives_.find_if(key, [](const posted& receive) { return !receive.granted; });
    }
    for (posted* receive : direct_receives_) {
      if (fits(*receive, key) && !receive->granted) return receive;
    }
    return nullptr;
  }
  /// The point-to-point receive that asked for the message of that number, still listed, or null.
  posted* asker(const message_key& key, std::uint64_t number) const {
    for (posted* receive : direct_receives_) {
      if (receive->granted && receive->key == key && receive->number == number) return receive;
    }
    return nullptr;
  }
  /// The oldest receive of that key, granted or not, still listed.
  posted* first(const message_key& key) const { return receives_.find(key); }

  // ---- messages

  /// A message that nobody has asked for yet.
  void keep(arrival& message) {
    if (message.key.is_point_to_point()) {
      direct_arrivals_.push_back(&message);
    } else {
      arrivals_.push_back(message);
    }
  }
  void forget(arrival& message) {
    if (message.key.is_point_to_point()) {
      std::erase(direct_arrivals_, &message);
    } else {
      arrivals_.remove(message);
    }
  }
  /// The oldest message of point to point that `which` picks, no longer listed, or null.
  template <class Which>
  arrival* take_arrival(Which which) {
    return take_first(direct_arrivals_, which);
  }
  /// The message that a listed receive of point to point pairs with (no longer listed, nor is the
  /// receive then), or null.
  arrival* pair_again(posted& receive) {
    arrival* const message = take_direct_arrival(receive);
    if (message != nullptr) unlist(receive);
    return message;
  }
  /// The message of a collective that came before its receive, or null.
  arrival* arrived(const message_key& key) const { return arrivals_.find(key); }
  /// Whether some message of a collective came before its receive.
  bool has_arrivals() const { return !arrivals_.empty(); }
  /// Calls `visit` for each of those; it may forget the one it is given.
  template <class Visit>
  void each_arrival(Visit visit) {
    arrivals_.each(visit);
  }
  /// Drops the messages of `count` communicators, one at a time, since who is told of it may
  /// withdraw others: its key, or nothing when none is left. Those point to point whose senders
  /// have gone on go without a word.
  std::optional<message_key> drop_arrival(std::uint32_t first, std::uint32_t count = 1) {
    const auto is_of_it = [=](const arrival& message) {
      return message.key.communicator - first < count;
    };
    std::erase_if(direct_arrivals_, [&](arrival* message) {
      if (!is_of_it(*message) || !message->buffered) return false;
      message->drop();
      return true;
    });
    arrival* found = take_first(direct_arrivals_, is_of_it);
    if (found == nullptr) {
      arrivals_.all_of([&](arrival& message) {
        if (is_of_it(message)) found = &message;
        return found == nullptr;
      });
      if (found != nullptr) arrivals_.remove(*found);
    }
    if (found == nullptr) return std::nullopt;
    const message_key key = found->key;
    found->drop();
    return key;
  }
  /// Drops them all without a word: also those of communicators that were never made here.
  void drop_arrivals() {
    for (arrival* const message : std::exchange(direct_arrivals_, {})) message->drop();
    arrivals_.each([&](arrival& message) {
      arrivals_.remove(message);
      message.drop();
    });
  }

 private:
  static bool fits(const posted& receive, const message_key& key) {
    return receive.key.communicator == key.communicator && receive.key.sequence == key.sequence &&
           (receive.key.peer == key.peer || receive.key.peer == posted::any_source);
  }

  // The oldest that `which` picks, or null.
  template <class Node, class Which>
  static Node* take_first(std::vector<Node*>& from, Which which) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      Node* const at = from[i];
      if (!which(*at)) continue;
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(i));
      return at;
    }
    return nullptr;
  }
  arrival* take_direct_arrival(const posted& receive) {
    return take_first(direct_arrivals_,
                      [&](const arrival& message) { return fits(receive, message.key); });
  }
  template <class Which>
  posted* take_direct(Which which) {
    posted* const receive = take_first(direct_receives_, which);
    if (receive != nullptr) receive->listed = false;
    return receive;
  }

  key_table<posted> receives_;
  key_table<arrival> arrivals_;
  std::vector<posted*> direct_receives_;
  std::vector<arrival*> direct_arrivals_;
};

}  // namespace colls
