// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A message between rank threads, and the protocol that decides which thread may access it.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/inbox.hpp>

#include <sched.h>

#include <memory>

namespace colls::threads {

/// A message in flight. The sender makes it, the receiver returns it, and the sender reuses it. The
/// receiver reads the sender's bytes only between a successful `claim` and `return_to_sender`. The
/// sender may release them outside of that time, or after a successful `try_cancel`.
struct message final : unexpected_message, inbox_entry {
  enum class stage : std::uint8_t { available, claimed, done, cancelled };

  /// Tells the receiver that the message was cancelled. It is a separate entry, because the
  /// message may still be in the receiver's inbox.
  struct cancel_notice : inbox_entry {
    message* subject = nullptr;
  };

  std::atomic<stage> progress{stage::done};
  inbox* return_inbox = nullptr;  // of the sender
  // The send operation, which only the sender accesses. Null if no operation waits for the message.
  void* owner = nullptr;
  const std::byte* data = nullptr;
  tag_matcher::block copy;         // the bytes of a buffered message
  tag_matcher* matcher = nullptr;  // the receiver's, while the message waits for its receive
  std::error_code result;          // set by the receiver
  cancel_notice cancellation;

  message() = default;
  message(const message&) = delete;
  message& operator=(const message&) = delete;
  ~message() { std::free(copy.memory); }

  /// For the receiver. Returns false if the sender has cancelled the message; a `cancel_notice`
  /// follows.
  bool claim() noexcept { return swap(stage::available, stage::claimed); }
  /// For the sender. Returns false if the receiver has claimed the message; it will be returned.
  bool try_cancel() noexcept { return swap(stage::available, stage::cancelled); }
  /// For the sender: waits until the receiver has stopped reading the bytes.
  void await_reader() const noexcept {
    while (progress.load(std::memory_order_acquire) == stage::claimed) ::sched_yield();
  }
  bool is_unclaimed() const noexcept {
    return progress.load(std::memory_order_relaxed) == stage::available;
  }

  /// For the receiver, which may not access the message afterwards. If the sender has left, the
  /// message stays where it is until the world is destroyed.
  void return_to_sender(std::error_code ec) noexcept {
    result = ec;
    type = kind::returned;
    progress.store(stage::done, std::memory_order_release);
    return_inbox->put(*this);
  }
  /// For the receiver: returns the message with `ec` unless it was cancelled.
  void reject(std::error_code ec) noexcept {
    if (claim()) return_to_sender(ec);
  }
  /// The receiver's call has ended, or is a different call than the sender's.
  void drop() override {
    const bool open = std::exchange(matcher, nullptr)->find(key.communicator) != nullptr;
    reject(make_error_code(open ? errc::mismatch : errc::closed));
  }

 private:
  bool swap(stage before, stage after) noexcept {
    return progress.compare_exchange_strong(before, after, std::memory_order_acq_rel,
                                            std::memory_order_relaxed);
  }
};

/// Owns the nodes of one kind that a rank has made, and reuses those that were given back.
template <class Node>
class node_pool {
 public:
  Node& take() {
    if (free_ == nullptr) {
      nodes_.push_back(std::make_unique<Node>());
      return *nodes_.back();
    }
    Node& node = static_cast<Node&>(*free_);
    free_ = free_->next_entry;
    return node;
  }
  void give(Node& node) noexcept {
    node.next_entry = free_;
    free_ = &node;
  }

 private:
  std::vector<std::unique_ptr<Node>> nodes_;
  inbox_entry* free_ = nullptr;
};

}  // namespace colls::threads
