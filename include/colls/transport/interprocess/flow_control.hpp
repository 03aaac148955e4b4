// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// credit: what may go to a peer that has not asked for it, and what the peer has asked for.

#include <colls/base/network_cost.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <algorithm>
#include <list>
#include <new>
#include <utility>

namespace colls::tcp {

/// Bytes that a rank may send on a link without having been asked, and that its peer may have to
/// keep until somebody wants them.
inline constexpr std::size_t window = eager_window;
/// What a message takes of the window.
constexpr std::size_t weight(std::size_t size) { return size + 64; }

/// Headers of long messages of point to point that may go ahead on a link, of all keys.
inline constexpr std::size_t most_ahead = 64;

/// Headers that may wait on a link for their receives, of all keys. A rank sends half of them ahead
/// of messages of point to point, and some for the collectives that run.
inline constexpr std::size_t most_headers = std::size_t{2} << 20;

/// Grants of a peer that may wait on a link for their messages, of all keys. A rank grants a message
/// of a collective when it posts its receive, so they are as many as it has receives posted: a
/// communicator runs 64 calls at a time, and so many grants are those of thousands of communicators.
inline constexpr std::size_t most_grants = std::size_t{1} << 20;

/// The window in both directions, grants that came before their messages, and messages that wait
/// for theirs. The k-th grant of a key belongs to the k-th of its messages that waits.
class credit {
 public:
  key_table<outgoing> waiting;  // of collectives
  key_table<outgoing> ahead;    // of point to point: their headers go ahead of them
  /// Messages of point to point that the peer has announced.
  std::uint64_t heard_of = 0;
  /// Headers of the peer's messages that wait here for their receives.
  std::size_t headers = 0;

  credit() = default;
  credit(const credit&) = delete;
  credit& operator=(const credit&) = delete;
  ~credit() {
    ahead.each([&](outgoing& send) {
      if (send.gone) delete &send;
    });
    grants_.each([](banked& entry) { delete &entry; });
    while (spare_ != nullptr) delete std::exchange(spare_, static_cast<banked*>(spare_->next));
  }

  key_table<outgoing>& waiting_as(const message_key& key) {
    return key.is_point_to_point() ? ahead : waiting;
  }
  bool any_waiting() const { return !waiting.empty() || !ahead.empty(); }

  /// Whether the header of that message of point to point may go ahead of it: the peer keeps a few
  /// in all, and one of each key, so that a receive of any key finds its message. Where there are
  /// very many keys, some wait.
  bool may_announce(const outgoing& send) const {
    if (are_all_ahead()) return false;
    return is_next(send.key) || (send.size > eager_limit && ahead.size() < most_ahead);
  }
  /// Whether so many headers have gone ahead that no other one may.
  bool are_all_ahead() const { return ahead.size() >= most_headers / 2; }
  /// No message of its key is ahead, whose grant would let it go on: it waits for any to leave.
  void hold(outgoing& send) {
    if (send.held || !is_next(send.key)) return;
    held_.push_back(send.key);
    send.held = true;
  }
  bool holds_any() const { return !held_.empty(); }
  /// Calls `go_on(key)` for the keys that were held, in their order, as long as there is room ahead.
  template <class GoOn>
  void let_held_go(GoOn go_on) {
    while (!held_.empty() && !are_all_ahead()) {
      const message_key key = held_.front();
      held_.pop_front();
      if (outgoing* const next = next_behind(key)) next->held = false;
      go_on(key);
    }
  }
  /// Others of its key are to go first.
  void put_behind(outgoing& send) {
    behind_.push_back(send);
    send.behind = true;
  }
  /// The next message of that key that is behind others, or null.
  outgoing* next_behind(const message_key& key) const { return behind_.find(key); }
  void leave_behind(outgoing& send) {
    behind_.remove(send);
    send.behind = false;
  }
  template <class Visit>
  void each(Visit visit) {
    waiting.each(visit);
    ahead.each([&](outgoing& send) {
      if (!send.gone) visit(send);
    });
    behind_.each(visit);
  }

  /// Of a message that was announced and is withdrawn something stays in its place: the k-th grant
  /// belongs to the k-th message. False: there is no memory for that.
  [[nodiscard]] bool bury(outgoing& send) {
    auto* const stays = new (std::nothrow) outgoing;
    if (stays == nullptr) return false;
    stays->key = send.key;
    stays->number = send.number;
    stays->gone = stays->reminded = true;
    ahead.replace(send, *stays);
    return true;
  }
  /// The peer had not asked for it, and never will. False: no message of that number was buried.
  bool forget(const message_key& key, std::uint64_t number) {
    outgoing* const send = ahead.find_if(
        key, [&](const outgoing& each) { return each.gone && each.number == number; });
    if (send == nullptr) return false;
    ahead.remove(*send);
    delete send;
    return true;
  }

  /// Whether no message of that key waits.
  bool is_next(const message_key& key) const {
    const key_table<outgoing>& all = key.is_point_to_point() ? ahead : waiting;
    return all.empty() || all.find(key) == nullptr;
  }

  // ---- unsolicited bytes

  /// Takes a message of `size` bytes from the window. False: it may not go unasked.
  bool spend(std::size_t size) {
    if (size > eager_limit || weight(size) > allowance_) return false;
    allowance_ -= weight(size);
    return true;
  }
  /// The peer gives them back.
  void refill(std::uint64_t bytes) {
    allowance_ += std::min<std::size_t>(bytes, window - allowance_);
  }
  /// Whether a peer that keeps to its window can have sent a message of `size` bytes: what lies
  /// here or was not given back yet, it has spent.
  bool expects(std::size_t size) const {
    return size <= eager_limit && kept_ + unreturned_ + weight(size) <= window;
  }
  /// A message of the peer lies here before it is consumed.
  void keep(std::size_t size) { kept_ += weight(size); }
  /// It does so no more.
  void let_go(std::size_t size) { kept_ -= weight(size); }
  /// A message of the peer was used up here: how many bytes to give back to it now, or 0; not too
  /// often.
  std::size_t consumed(std::size_t size) {
    unreturned_ += weight(size);
    return unreturned_ >= window / 4 ? std::exchange(unreturned_, 0) : 0;
  }

  // ---- grants

  bool take_grant(const message_key& key) {
    banked* const entry = grants_.find(key);
    if (entry == nullptr) return false;
    --banked_;
    if (--entry->count == 0) forget(*entry);
    return true;
  }
  /// False: no rank of colls grants so much.
  [[nodiscard]] bool bank_grant(const message_key& key) {
    if (banked_ == most_grants) return false;
    if (banked* const known = grants_.find(key)) {
      ++known->count;
    } else {
      grants_.make_room();
      banked& entry = spare_ != nullptr ? *std::exchange(spare_, static_cast<banked*>(spare_->next))
                                        : *new banked;
      entry.key = key;
      entry.count = 1;
      grants_.push_back(entry);
    }
    ++banked_;
    return true;
  }
  void drop_grants(std::uint32_t communicator) {
    grants_.each([&](banked& entry) {
      if (entry.key.communicator != communicator) return;
      banked_ -= entry.count;
      forget(entry);
    });
  }
  /// Ends the waiting messages that `which` picks.
  template <class Which>
  void fail(std::error_code ec, Which which) {
    for (key_table<outgoing>* const table : {&waiting, &ahead, &behind_}) {
      table->each([&](outgoing& send) {
        if (!which(send)) return;
        table->remove(send);
        if (send.gone) {
          delete &send;
          return;
        }
        send.waits = send.behind = false;
        send.finish(ec);
      });
    }
  }

 private:
  struct banked : keyed {
    std::size_t count = 0;
  };
  void forget(banked& entry) {
    grants_.remove(entry);
    entry.next = std::exchange(spare_, &entry);
  }

  key_table<outgoing> behind_;
  std::list<message_key> held_;  // of messages that are behind
  std::size_t allowance_ = window;
  std::size_t kept_ = 0;        // of the peer's window, by messages that lie here
  std::size_t unreturned_ = 0;  // and by others, until it is given back
  key_table<banked> grants_;
  std::size_t banked_ = 0;   // of all keys
  banked* spare_ = nullptr;  // used again, by `next`
};

}  // namespace colls::tcp
