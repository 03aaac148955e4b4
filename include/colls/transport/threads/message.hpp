// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A message between rank threads, and the protocol that decides which thread may access it.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/inbox.hpp>

#include <sched.h>

#include <memory>

namespace colls::threads {

/// A message in flight. The sender creates the message, the receiver returns it, and the sender
/// reuses it. The receiver reads the bytes of the message only between a successful `claim` and
/// `return_to_sender`. The sender may release these bytes only after the message was returned or
/// after a successful `try_cancel`.
struct message final : unexpected_message, inbox_entry {
  enum class stage : std::uint8_t { available, claimed, done, cancelled };

  /// An inbox entry that tells the receiver that the message was cancelled. It is a separate entry,
  /// because the message may still be in the receiver's inbox.
  struct cancel_notice : inbox_entry {
    message* subject = nullptr;
  };

  std::atomic<stage> progress{stage::done};
  inbox* return_inbox = nullptr;  // the inbox of the sender
  // The send operation, which only the sender accesses. Null if no operation waits for the message.
  void* owner = nullptr;
  const std::byte* data = nullptr;
  tag_matcher::block copy;         // the bytes of a buffered message
  tag_matcher* matcher = nullptr;  // the receiver's matcher, while the message is queued there
  std::error_code result;          // set by the receiver
  cancel_notice cancellation;

  message() = default;
  message(const message&) = delete;
  message& operator=(const message&) = delete;
  ~message() { std::free(copy.memory); }

  /// Claims the message for the receiver. Returns false if the sender has cancelled the message. In
  /// that case the sender also puts a `cancel_notice` into the receiver's inbox.
  bool claim() noexcept { return swap(stage::available, stage::claimed); }
  /// Cancels the message on behalf of the sender. Returns false if the receiver has claimed the
  /// message, in which case the receiver returns it.
  bool try_cancel() noexcept { return swap(stage::available, stage::cancelled); }
  /// Waits until the receiver has stopped reading the bytes. Called by the sender.
  void await_reader() const noexcept {
    while (progress.load(std::memory_order_acquire) == stage::claimed) ::sched_yield();
  }
  bool is_unclaimed() const noexcept {
    return progress.load(std::memory_order_relaxed) == stage::available;
  }

  /// Returns the message to its sender. After this call, the receiver must not access the message.
  /// If the sender has left, the message stays unused until the world is destroyed.
  void return_to_sender(std::error_code ec) noexcept {
    result = ec;
    type = kind::returned;
    progress.store(stage::done, std::memory_order_release);
    return_inbox->put(*this);
  }
  /// Returns the message to its sender with the error `ec`, unless the sender has cancelled it.
  /// Called by the receiver.
  void reject(std::error_code ec) noexcept {
    if (claim()) return_to_sender(ec);
  }
  /// Rejects a message that will never be received. The error is `mismatch` if the receiver still
  /// has the communicator, and `closed` if the receiver has left it.
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

/// A pool that owns all nodes of one type that a rank has allocated, and reuses the nodes that were
/// given back.
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
