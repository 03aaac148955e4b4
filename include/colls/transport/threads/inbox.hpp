// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The inbox of a rank: a queue to which other threads write. The thread of the rank can sleep while
// its inbox is empty.

#include <colls/base/clock.hpp>
#include <colls/base/intrusive_list.hpp>
#include <colls/coroutine/completion.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace colls::threads {

/// An entry of an inbox. It is in at most one inbox at a time.
struct inbox_entry {
  enum class kind : std::uint8_t {
    message,    // a message to receive
    cancelled,  // the sender has cancelled a message
    returned,   // a message returns to its sender for reuse
    announce,
    report,
    dispute,
    revoke,
    recovery,
    processed,  // a control message returns to its sender for reuse
    wake,       // the rank has to look for completions that other threads have posted
    goodbye,    // the sender has left the world or has failed, and sends no new messages
  };

  kind type{};
  inbox_entry* next_entry = nullptr;
};

/// A multi-producer, single-consumer queue. The consumer takes the entries of one producer in the
/// order in which that producer put them.
class inbox {
 public:
  inbox() = default;
  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;

  /// Puts an entry into the inbox. Returns false if the inbox is closed. The caller then keeps the
  /// entry.
  bool put(inbox_entry& entry) noexcept {
    inbox_entry* last = last_.load(std::memory_order_relaxed);
    do {
      if (last == &closed_) return false;
      entry.next_entry = last;
    } while (!last_.compare_exchange_weak(last, &entry, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
    // The consumer sleeps only while the inbox is empty, so only an entry that is put into an empty
    // inbox must wake the consumer.
    if (last == nullptr && asleep_.load(std::memory_order_seq_cst) != 0) wake();
    return true;
  }

  /// Takes all entries out of the inbox. Returns the oldest entry, or null if there are none. The
  /// entries form a list from the oldest to the newest, which is linked through `next_entry`.
  inbox_entry* take() noexcept {
    inbox_entry* const last = last_.load(std::memory_order_relaxed);
    if (last == nullptr || last == &closed_) return nullptr;
    return in_order(last_.exchange(nullptr, std::memory_order_acquire));
  }
  /// Closes the inbox and takes all entries, as `take` does. After this call, `put` returns false.
  inbox_entry* close() noexcept {
    return in_order(last_.exchange(&closed_, std::memory_order_acq_rel));
  }

  /// Sleeps until the inbox contains an entry, but not longer than `max_duration`. May also return
  /// earlier without an entry (a spurious wakeup).
  void sleep(time_point max_duration) noexcept {
    asleep_.store(1, std::memory_order_seq_cst);
    if (last_.load(std::memory_order_seq_cst) == nullptr) {
      const timespec limit{max_duration / seconds, max_duration % seconds};
      // The result is ignored, because the caller polls the inbox again even after an error or a
      // timeout.
      (void)::syscall(SYS_futex, &asleep_, FUTEX_WAIT_PRIVATE, 1, &limit, nullptr, 0);
    }
    asleep_.store(0, std::memory_order_relaxed);
  }

 private:
  static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

  void wake() noexcept {
    asleep_.store(0, std::memory_order_relaxed);
    // The result is ignored, because this system call fails only if the address is invalid.
    (void)::syscall(SYS_futex, &asleep_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  static inbox_entry* in_order(inbox_entry* newest) noexcept {
    return reversed<inbox_entry, &inbox_entry::next_entry>(newest);
  }

  // Because of this alignment, two inboxes never share a cache line. Writes to one inbox therefore
  // do not slow down accesses to another.
  alignas(64) std::atomic<inbox_entry*> last_ = nullptr;
  std::atomic<std::uint32_t> asleep_ = 0;
  inbox_entry closed_;
};

/// The inboxes of all ranks of a world.
class inboxes {
 public:
  explicit inboxes(int ranks)
      : inboxes_(std::make_unique<inbox[]>(static_cast<std::size_t>(ranks))), size_(ranks) {}

  int size() const { return size_; }
  inbox& operator[](int rank) { return inboxes_[static_cast<std::size_t>(rank)]; }

 private:
  std::unique_ptr<inbox[]> inboxes_;
  int size_;
};

/// Wakes a rank by an entry in its inbox.
class inbox_waker final : public run_queue::remote_waker {
 public:
  explicit inbox_waker(inbox& own_inbox) : inbox_(own_inbox) {
    entry_.type = inbox_entry::kind::wake;
  }
  void wake() noexcept override {
    // The result of `put` is ignored. If the inbox is closed, the rank has left, and its operations
    // have ended.
    if (!is_in_inbox_.exchange(true)) inbox_.put(entry_);
  }
  /// Called after the entry was taken out of the inbox and before the run queue runs.
  void took_entry() noexcept { is_in_inbox_.exchange(false); }

 private:
  inbox& inbox_;
  inbox_entry entry_;
  std::atomic<bool> is_in_inbox_ = false;
};

}  // namespace colls::threads
