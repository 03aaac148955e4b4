// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// access_guard: tells the owner of memory which ranks access the memory, and lets the owner end
// that access. The guard consists of lines of memory that the owner and the accessing ranks have
// mapped.
//
// An operation of the owner opens a key. Before a rank accesses the memory, it enters: it marks its
// slot of the guard and then checks that the key is still open. After a bounded amount of work it
// leaves, that is, it removes the mark. To end the access, the owner revokes the key and then waits
// until no slot is marked. Several operations may have open keys. A mark does not tell which of
// them a rank works for.
//
// Each line of the table is a pair of accesses whose order matters, and what keeps this order. The
// models in tests/model check the table: they have a step of the same name.
//
//   first access                then                        kept in order by
//   accessor: store of a mark   load of the key             enter_fence
//   owner: store of the key     loads of the marks          revoke_fence
//     One of the two sides sees the other: either the accessor sees the closed key and does not
//     begin, or the owner sees the mark and waits. This takes both fences.
//   accessor: its work          store that clears the mark  leave (release)
//   owner: load of that store   reuse of the memory         revoke_wait (acquire)
//     What the accessor writes is in memory before the owner uses the memory again.
//   owner: store of the key     reuse of the memory         revoke_fence
//   accessor: its reads         second load of the key      second_check (acquire fence)
//     If the accessor has read what the owner has written since, it sees the closed key.
//   owner: store of a key       message with the key        the message
//   accessor: its work          message that it is done     the message
//   accessor: its description   store of a mark             enter_mark (release)
//   owner: other stores         store that closes a key     close_key, revoke_key (release)
//     If one side sees the second store of the other, it also sees what the other has stored
//     before, for example what the accessor says of its work, where users of the guard have it.

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace colls::shm {

/// A key that permits peers to access the memory that one operation exposes. The permission ends
/// when the owner closes the key. The value 0 means no key.
using remote_key = std::uint64_t;
/// The number of keys of a guard that may be open at a time.
inline constexpr std::size_t max_remote_keys = 256;

/// A line of memory that processes share.
struct alignas(64) shared_line {
  std::atomic<std::uint64_t> word;
};

/// The lines of a guard with `slot_count` slots are one line for each slot, followed by one line
/// for each key. All lines are zero at first.
constexpr std::size_t guard_lines(int slot_count) {
  return static_cast<std::size_t>(slot_count) + max_remote_keys;
}

/// Whether a rank may still access the memory. `unknown` means that the owner does not wait to find
/// out.
enum class may_access : std::uint8_t { yes, no, unknown };

/// The owner's side of a guard.
class access_guard {
 public:
  access_guard() = default;
  access_guard(shared_line* lines, int slot_count) : lines_(lines), slots_(slot_count) {}

  /// Opens a key and returns it. Returns 0 if no key is free. No key is ever opened twice.
  remote_key open_key() {
    for (std::size_t i = 0; i < max_remote_keys; ++i) {
      const std::size_t index = (next_ + i) % max_remote_keys;
      std::atomic<std::uint64_t>& word = key_line(index);
      if (word.load(std::memory_order_relaxed) != 0) continue;
      next_ = index + 1;
      const remote_key key = ++opened_ * max_remote_keys + index;
      word.store(key, std::memory_order_release);  // Model step: open_key
      return key;
    }
    return 0;
  }
  /// Closes a key. Called when all peers have reported that they no longer access the memory that
  /// the key exposes.
  void close_key(remote_key key) {
    key_line(key).store(0, std::memory_order_release);  // Model step: close_key
  }
  /// Closes a key that peers may still be using. After this call, only a rank that is already
  /// inside can still access the memory that the key exposes.
  void revoke_key(remote_key key) {
    key_line(key).store(0, std::memory_order_release);    // Model step: revoke_key
    std::atomic_thread_fence(std::memory_order_seq_cst);  // Model step: revoke_fence
  }
  /// Returns whether the rank with this slot is inside. Called after `revoke_key`.
  bool is_inside(int slot) const {
    return lines_[slot].word.load(std::memory_order_acquire) != 0;  // Model step: revoke_wait
  }
  /// Waits until no rank is inside. Called after `revoke_key`. As long as the rank with the slot
  /// `slot` is inside, this function calls `check(slot)`, which pauses and then returns whether
  /// this rank may still access the memory. If the result is `no` or `unknown`, the wait for this
  /// rank ends. Returns false if the result was `unknown` for some rank.
  template <class Check>
  bool await_exit(const Check& check) const {
    bool is_certain = true;
    for (int slot = 0; slot < slots_; ++slot) {
      may_access found = may_access::yes;
      while (found == may_access::yes && is_inside(slot)) found = check(slot);
      is_certain &= found != may_access::unknown;
    }
    return is_certain;
  }

 private:
  std::atomic<std::uint64_t>& key_line(remote_key key) const {
    return lines_[static_cast<std::size_t>(slots_) + key % max_remote_keys].word;
  }

  shared_line* lines_ = nullptr;
  int slots_ = 0;
  std::uint64_t opened_ = 0;
  std::size_t next_ = 0;
};

/// The side of a rank that accesses the memory. `slot` is the rank's slot in a guard with
/// `slot_count` slots, whose lines this process has mapped at `lines`. Only one thread may use a
/// slot.
class guard_view {
 public:
  guard_view() = default;
  guard_view(shared_line* lines, int slot_count, int slot)
      : mark_(&lines[slot]), keys_(&lines[slot_count]) {}

  /// Enters several guards. `for_each(action)` must call `action(view, key)` for each of them.
  /// Returns whether all keys are open. This rank may access the memory of the owners only if they
  /// are. It must leave all guards in any case.
  template <class ForEach>
  static bool enter_all(const ForEach& for_each) {
    for_each([](const guard_view& view, remote_key) { view.mark(); });
    std::atomic_thread_fence(std::memory_order_seq_cst);  // Model step: enter_fence
    bool all_open = true;
    for_each([&](const guard_view& view, remote_key key) { all_open &= view.is_open(key); });
    return all_open;
  }
  /// Returns whether the keys of several guards are still open after this rank has read memory that
  /// they expose. If they are not, the data may be wrong.
  template <class ForEach>
  static bool are_still_open(const ForEach& for_each) {
    std::atomic_thread_fence(std::memory_order_acquire);  // Model step: second_check
    bool all_open = true;
    for_each([&](const guard_view& view, remote_key key) { all_open &= view.is_open(key); });
    return all_open;
  }
  /// Leaves the guard once. A rank that has entered several times is inside until it has left as
  /// often. Called after this rank's last access.
  void leave() const {
    mark_->word.store(count() - 1, std::memory_order_release);  // Model step: leave
  }
  /// Leaves the guard as often as this rank has entered.
  void leave_entirely() const { mark_->word.store(0, std::memory_order_release); }

  bool is_open(remote_key key) const {
    const std::atomic<std::uint64_t>& word = keys_[key % max_remote_keys].word;
    return word.load(std::memory_order_acquire) == key;  // Model step: enter_check
  }

 private:
  std::uint64_t count() const { return mark_->word.load(std::memory_order_relaxed); }
  void mark() const {
    mark_->word.store(count() + 1, std::memory_order_release);  // Model step: enter_mark
  }

  shared_line* mark_ = nullptr;
  shared_line* keys_ = nullptr;
};

}  // namespace colls::shm
