// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// inbox: what other threads leave for a rank, and where it sleeps until they do.

#include <colls/base/clock.hpp>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>

namespace colls::threads {

/// Something that travels from rank to rank; lies in one inbox at a time.
struct item {
  enum class kind : std::uint8_t {
    message,     // on offer
    taken_back,  // by its sender: forget it
    returned,    // a message that its sender may use again
    announce,
    report,
    dispute,
    revoke,
    spent,    // one of the four above, for its sender to use again
    goodbye,  // the last of its sender
  };

  kind what{};
  item* following = nullptr;
};

/// Any thread puts, one thread takes; what one thread puts is taken in that order.
class inbox {
 public:
  inbox() = default;
  inbox(const inbox&) = delete;
  inbox& operator=(const inbox&) = delete;

  /// False: its owner has left, and the item stays the caller's.
  bool put(item& sent) noexcept {
    item* last = last_.load(std::memory_order_relaxed);
    do {
      if (last == &closed_) return false;
      sent.following = last;
    } while (!last_.compare_exchange_weak(last, &sent, std::memory_order_seq_cst,
                                          std::memory_order_relaxed));
    // Who finds others before it leaves the waking to the first of them.
    if (last == nullptr && asleep_.load(std::memory_order_seq_cst) != 0) wake();
    return true;
  }

  /// All that was put, in order, linked by `following`.
  item* take() noexcept {
    item* const last = last_.load(std::memory_order_relaxed);
    if (last == nullptr || last == &closed_) return nullptr;
    return reversed(last_.exchange(nullptr, std::memory_order_acquire));
  }
  /// The same, and nothing can be put any more.
  item* close() noexcept { return reversed(last_.exchange(&closed_, std::memory_order_acq_rel)); }

  /// Until something is put, or for `at_most`.
  void sleep(time_point at_most) noexcept {
    asleep_.store(1, std::memory_order_seq_cst);
    if (last_.load(std::memory_order_seq_cst) == nullptr) {
      const timespec limit{at_most / seconds, at_most % seconds};
      // Woken, too late or at the limit: the caller looks again.
      (void)::syscall(SYS_futex, &asleep_, FUTEX_WAIT_PRIVATE, 1, &limit, nullptr, 0);
    }
    asleep_.store(0, std::memory_order_relaxed);
  }

 private:
  static_assert(sizeof(std::atomic<std::uint32_t>) == 4);

  void wake() noexcept {
    asleep_.store(0, std::memory_order_relaxed);
    // Fails only for a wrong address.
    (void)::syscall(SYS_futex, &asleep_, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
  }

  static item* reversed(item* last) noexcept {
    item* first = nullptr;
    while (last != nullptr) {
      item* const before = last->following;
      last->following = first;
      first = last;
      last = before;
    }
    return first;
  }

  // A line of its own: other threads write here all the time.
  alignas(64) std::atomic<item*> last_ = nullptr;
  std::atomic<std::uint32_t> asleep_ = 0;
  item closed_;
};

/// One for each rank of a world.
class inboxes {
 public:
  explicit inboxes(int ranks)
      : all_(std::make_unique<inbox[]>(static_cast<std::size_t>(ranks))), size_(ranks) {}

  int size() const { return size_; }
  inbox& operator[](int rank) { return all_[static_cast<std::size_t>(rank)]; }

 private:
  std::unique_ptr<inbox[]> all_;
  int size_;
};

}  // namespace colls::threads
