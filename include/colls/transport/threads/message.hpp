// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// message: what a rank offers to another thread, and who may touch it when.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/inbox.hpp>

#include <sched.h>

#include <memory>

namespace colls::threads {

/// A message on its way. Made by the sender, handed back to it by the receiver, used again. The
/// receiver reads the sender's bytes only between a successful `claim` and `hand_back`, the sender
/// destroys them only after a successful `take_back`, or outside of that time.
struct message final : arrival, item {
  enum class stage : std::uint8_t { offered, claimed, done, taken_back };

  /// Travels by itself, since the message may lie in a list of the receiver.
  struct notice : item {
    message* of = nullptr;
  };

  std::atomic<stage> at{stage::done};
  inbox* home = nullptr;  // the sender's
  void* owner = nullptr;  // the sender's operation, for the sender alone; null: it waits no more
  const std::byte* data = nullptr;
  match::block copy;         // of a message whose sender has gone on
  match* kept_by = nullptr;  // where it waits for its receive
  std::error_code verdict;   // the receiver's
  notice taking_back;

  message() = default;
  message(const message&) = delete;
  message& operator=(const message&) = delete;
  ~message() { std::free(copy.memory); }

  /// Receiver: false if the sender has taken it back; its notice will come.
  bool claim() noexcept { return swap(stage::offered, stage::claimed); }
  /// Sender: false if the receiver was faster; the message will come back.
  bool take_back() noexcept { return swap(stage::offered, stage::taken_back); }
  /// Sender: until nobody reads its bytes any more.
  void await_reader() const noexcept {
    while (at.load(std::memory_order_acquire) == stage::claimed) ::sched_yield();
  }
  bool is_offered() const noexcept { return at.load(std::memory_order_relaxed) == stage::offered; }

  /// Receiver: the last touch. A sender that has left gets nothing; its world frees it.
  void hand_back(std::error_code result) noexcept {
    verdict = result;
    what = kind::returned;
    at.store(stage::done, std::memory_order_release);
    home->put(*this);
  }
  void reject(std::error_code result) noexcept {
    if (claim()) hand_back(result);
  }
  /// Its call is over here, or another one than the sender's.
  void drop() override {
    const bool open = std::exchange(kept_by, nullptr)->find(key.communicator) != nullptr;
    reject(make_error_code(open ? errc::mismatch : errc::closed));
  }

 private:
  bool swap(stage before, stage after) noexcept {
    return at.compare_exchange_strong(before, after, std::memory_order_acq_rel,
                                      std::memory_order_relaxed);
  }
};

/// Nodes of one kind that a rank has made, and those of them that it may use again.
template <class Node>
class stock {
 public:
  Node& take() {
    if (spare_ == nullptr) {
      all_.push_back(std::make_unique<Node>());
      return *all_.back();
    }
    Node& node = static_cast<Node&>(*spare_);
    spare_ = spare_->following;
    return node;
  }
  void give(Node& node) noexcept {
    node.following = spare_;
    spare_ = &node;
  }

 private:
  std::vector<std::unique_ptr<Node>> all_;
  item* spare_ = nullptr;
};

}  // namespace colls::threads
