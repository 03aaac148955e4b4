// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A message between rank threads, and the protocol that decides which thread may access it.

#include <colls/matching/tag_matcher.hpp>
#include <colls/transport/threads/inbox.hpp>

#include <sched.h>

#include <memory>

namespace colls::threads {

/// A message in flight. When the receiver has processed the message, it returns the message to the
/// sender, which reuses it. The receiver may read the payload only after a successful `claim` and
/// before `return_to_sender`. The sender may release the payload only after the receiver has
/// returned the message, or after a successful `try_cancel`.
struct message final : unexpected_message, inbox_entry {
  enum class stage : std::uint8_t { available, claimed, done, cancelled };

  /// An inbox entry that tells the receiver that the message was cancelled. It is a separate entry,
  /// because the message may still be in the receiver's inbox.
  struct cancel_notice : inbox_entry {
    message* subject = nullptr;
  };

  std::atomic<stage> progress{stage::done};
  inbox* return_inbox = nullptr;  // the inbox of the sender
  // The send operation that waits until the receiver returns the message, or null if there is none.
  // Only the sender accesses this pointer.
  void* owner = nullptr;
  const std::byte* data = nullptr;
  payload_source* source = nullptr;  // if not null, in place of `data`
  tag_matcher::block copy;           // the bytes of a buffered message
  tag_matcher* matcher = nullptr;    // the receiver's matcher, while the message is queued there
  std::error_code result;            // set by the receiver
  cancel_notice cancellation;

  message() = default;
  message(const message&) = delete;
  message& operator=(const message&) = delete;
  ~message() { std::free(copy.memory); }

  /// Claims the message for the receiver. Returns false if the sender has cancelled the message. In
  /// that case the sender also puts a `cancel_notice` into the receiver's inbox.
  bool claim() noexcept { return swap(stage::available, stage::claimed); }
  /// Passes the payload of a claimed message to `receive`.
  void deliver_to(posted_receive& receive) {
    if (source != nullptr) return receive.accept(*source, key.peer);
    receive.accept(data, size, key.peer);
  }
  /// Cancels the message on behalf of the sender. Returns false if the receiver has already claimed
  /// the message. The receiver then returns the message after it has processed it.
  bool try_cancel() noexcept { return swap(stage::available, stage::cancelled); }
  /// Waits until the receiver no longer reads the payload. Called by the sender when `try_cancel`
  /// has returned false.
  void await_reader() const noexcept {
    while (progress.load(std::memory_order_acquire) == stage::claimed) ::sched_yield();
  }
  bool is_unclaimed() const noexcept {
    return progress.load(std::memory_order_relaxed) == stage::available;
  }

  /// Returns the message to its sender with the result `ec`. After this call, the receiver must not
  /// access the message. If the sender has left the world, no rank reuses the message.
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
  /// Rejects the message, because no receive will take it. The sender gets the error `mismatch` if
  /// the receiving rank is still a member of the communicator. It gets the error `closed` if the
  /// receiving rank has left the communicator.
  void drop() override {
    const bool open = std::exchange(matcher, nullptr)->find(key.communicator) != nullptr;
    reject(make_error_code(open ? errc::mismatch : errc::closed));
  }
  void discard() noexcept override {
    matcher = nullptr;
    reject(make_error_code(errc::cancelled));
  }

 private:
  bool swap(stage before, stage after) noexcept {
    return progress.compare_exchange_strong(before, after, std::memory_order_acq_rel,
                                            std::memory_order_relaxed);
  }
};

/// A pool of nodes of one type, used by one rank. The pool owns all nodes that it has allocated,
/// and reuses the nodes that were given back.
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
