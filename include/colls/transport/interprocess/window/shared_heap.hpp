// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// arena: memory of one rank in which its peers may read and write while an operation lasts.
//
// An operation that lends its buffers opens a ticket in its own arena. A peer raises its own line
// there before it touches anything, looks whether the ticket is still open, and lowers the line
// after at most a few cells. Whoever takes a ticket back and then sees no line raised knows that
// nobody touches the buffers any more.

#include <colls/os/cross_memory_attach.hpp>
#include <colls/os/fork_guard.hpp>
#include <colls/os/shared_memory.hpp>

#include <sched.h>
#include <sys/random.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <new>
#include <vector>

namespace colls::shm {

/// Where something lies in an arena; 0: nowhere. With `own_memory`, the address of what lies in the
/// owner's own memory instead, where peers may read it by the kernel.
using place = std::uint64_t;
inline constexpr place own_memory = place{1} << 63;
/// An operation's permission to touch what it lends; 0: none.
using ticket = std::uint64_t;

/// Addresses that an arena takes; memory it takes as it is asked for.
inline constexpr std::size_t arena_bytes = std::size_t{1} << 36;
inline constexpr std::size_t tickets = 256;

struct alignas(64) arena_line {
  std::atomic<std::uint64_t> word;
};

/// What an arena begins with: a line for each rank of the world, the tickets, the address at which
/// its owner has all this, a number that no other arena has, and then a sample by which peers see
/// how fast they read.
constexpr std::size_t home_line(int ranks) { return static_cast<std::size_t>(ranks) + tickets; }
constexpr std::size_t sample_at(int ranks) {
  return whole_pages((home_line(ranks) + 2) * sizeof(arena_line));
}
inline constexpr std::size_t sample_bytes = 64 * 1024;
static_assert(sample_bytes % longest_page == 0 && arena_bytes % longest_page == 0);
constexpr std::size_t arena_head(int ranks) { return sample_at(ranks) + sample_bytes; }

/// A rank's own arena.
class arena {
 public:
  arena() = default;
  arena(const arena&) = delete;
  arena& operator=(const arena&) = delete;
  ~arena() { detail::kept_from_children::remove(lines_.data()); }

  std::error_code make(int ranks) {
    ranks_ = ranks;
    const std::size_t head = arena_head(ranks);
    if (const std::error_code ec = memory_.make_empty(arena_bytes)) return ec;
    if (const std::error_code ec = memory_.fill(0, head)) return ec;
    if (const std::error_code ec = lines_.map(memory_, 0, head)) return ec;
    if (const auto ec = detail::kept_from_children::add(lines_.data(), head)) return ec;
    std::uint64_t sign = 0;
    if (::getrandom(&sign, sizeof sign, 0) != sizeof sign) return detail::last_error();
    line(home_line(ranks))
        .store(reinterpret_cast<std::uintptr_t>(lines_.data()), std::memory_order_relaxed);
    line(home_line(ranks) + 1).store(sign, std::memory_order_relaxed);
    return {};
  }
  const segment& memory() const { return memory_; }
  /// False in a process that was forked off: peers read in the one that made the arena, and only
  /// that one may say what lies where.
  bool is_made_here() const { return detail::kept_from_children::forks() == forks_; }

  /// Zeros, on pages of their own; null: the system has none to give, for that reason, or not to
  /// this process.
  std::byte* allocate(std::size_t size, std::error_code* why = nullptr) {
    if (!is_made_here()) return nullptr;
    std::error_code ec;
    block made;
    made.size = whole_pages(size);
    made.place = take(made.size, ec);
    const place at = made.place;
    std::byte* data = nullptr;
    if (!ec) {
      data = keep(std::move(made), ec);
      if (ec) give_back(at);
    }
    if (ec && why != nullptr) *why = ec;
    return data;
  }
  /// Nobody has a ticket for it.
  void free(std::byte* at) {
    const auto found = blocks_.find(at);
    give_back(found->second.place);
    blocks_.erase(found);
  }

  /// Where that lies; 0 if not all of it is of one block.
  place locate(const_bytes data) const {
    auto found = blocks_.upper_bound(data.data);
    if (found == blocks_.begin() || data.size == 0) return 0;
    const auto& [at, lies] = *--found;
    const auto offset = static_cast<std::size_t>(data.data - at);
    return offset <= lies.size && data.size <= lies.size - offset ? lies.place + offset : 0;
  }

  bool same_block(const std::byte* one, const std::byte* other) const {
    const auto found = blocks_.upper_bound(one);
    return found != blocks_.begin() && found == blocks_.upper_bound(other);
  }

  /// 0: none is free.
  ticket open() {
    for (std::size_t i = 0; i < tickets; ++i) {
      const std::size_t slot = (next_ + i) % tickets;
      std::atomic<std::uint64_t>& word = line(static_cast<std::size_t>(ranks_) + slot);
      if (word.load(std::memory_order_relaxed) != 0) continue;
      next_ = slot + 1;
      const ticket made = ++opened_ * tickets + slot;
      word.store(made, std::memory_order_release);
      return made;
    }
    return 0;
  }
  /// Every peer has said that it is done.
  void close(ticket open) {
    line(static_cast<std::size_t>(ranks_) + open % tickets).store(0, std::memory_order_release);
  }
  /// The operation ends before its peers are done. After this, who is not inside stays outside.
  void revoke(ticket open) {
    close(open);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  bool is_inside(int rank) {
    return line(static_cast<std::size_t>(rank)).load(std::memory_order_acquire) != 0;
  }

  /// Moves the block of `data` to another place, at the same address and with the same contents: a
  /// peer that stays inside for ever writes to the old place, which is never given out again. False:
  /// the arena has no other place for it, or the system does not let it move.
  bool retire(const std::byte* data) {
    auto found = blocks_.upper_bound(data);
    if (found == blocks_.begin()) return true;
    block& old = (--found)->second;
    const place fresh = reserve(old.size);
    if (fresh == 0) return false;
    if (!old.pages.move(memory_, old.place, fresh)) {
      give_back(fresh);
      return false;
    }
    old.place = fresh;
    return true;
  }

 private:
  struct block {
    shm::place place = 0;
    std::size_t size = 0;
    mapping pages;
  };

  std::atomic<std::uint64_t>& line(std::size_t i) {
    return reinterpret_cast<arena_line*>(lines_.data())[i].word;
  }

  // The first gap that is long enough.
  place find(std::size_t size) const {
    place at = arena_head(ranks_);
    for (const auto& [begin, length] : taken_) {
      if (begin - at >= size) return at;
      at = begin + length;
    }
    return size <= arena_bytes - at ? at : 0;
  }
  // A place of its own, without pages; 0: there is none.
  place reserve(std::size_t size) {
    const place at = find(size);
    if (at == 0) return 0;
    try {
      taken_.emplace(at, size);
    } catch (const std::bad_alloc&) {
      return 0;
    }
    return at;
  }
  // The same with pages, unless there are none.
  place take(std::size_t size, std::error_code& ec) {
    const place at = reserve(size);
    if (at == 0) {
      ec = std::make_error_code(std::errc::not_enough_memory);
      return 0;
    }
    ec = memory_.fill(at, size);
    if (ec) taken_.erase(at);
    return at;
  }
  // Unless it cannot be mapped, or not be written down.
  std::byte* keep(block made, std::error_code& ec) {
    ec = made.pages.map(memory_, made.place, made.size);
    if (ec) return nullptr;
    std::byte* const at = made.pages.data();
    try {
      blocks_.emplace(at, std::move(made));
    } catch (const std::bad_alloc&) {
      ec = std::make_error_code(std::errc::not_enough_memory);
      return nullptr;
    }
    return at;
  }
  void give_back(place at) {
    const auto found = taken_.find(at);
    // A place whose pages the system keeps has no zeros for the next block.
    if (is_made_here() && memory_.release(at, found->second)) return;
    taken_.erase(found);
  }

  segment memory_;
  mapping lines_;
  int ranks_ = 0;
  unsigned forks_ = detail::kept_from_children::forks();
  std::map<const std::byte*, block> blocks_;
  std::map<place, std::size_t> taken_;  // also what was retired
  std::uint64_t opened_ = 0;
  std::size_t next_ = 0;
};

/// A peer's arena, as this process sees it.
class arena_view {
 public:
  arena_view() = default;
  arena_view(const arena_view&) = delete;
  arena_view& operator=(const arena_view&) = delete;
  ~arena_view() { detail::kept_from_children::remove(all_.data()); }

  std::error_code map(const segment& theirs, int ranks, int rank) {
    ranks_ = ranks;
    mine_ = static_cast<std::size_t>(rank);
    if (theirs.size() != arena_bytes) return make_error_code(errc::protocol_error);
    if (const std::error_code ec = all_.map_later(theirs, arena_bytes)) return ec;
    return detail::kept_from_children::add(all_.data(), arena_bytes);
  }

  /// Null: no operation's buffer can lie there.
  std::byte* at(place where, std::size_t size) const {
    if (where < arena_head(ranks_) || where > arena_bytes || size > arena_bytes - where) {
      return nullptr;
    }
    return all_.data() + where;
  }

  /// Before anything is touched; a fence comes between this and `is_open`.
  void raise() { line(mine_).store(1, std::memory_order_relaxed); }
  bool is_open(ticket lent) const {
    return line(static_cast<std::size_t>(ranks_) + lent % tickets)
               .load(std::memory_order_acquire) == lent;
  }
  void lower() { line(mine_).store(0, std::memory_order_release); }

  /// From now on `read` reads what its owner lends of its own memory, if that is this process: who
  /// has the same arena at the same address.
  std::error_code find_owner(pid_t owner) {
    const std::size_t sign = home_line(ranks_) + 1;
    home_ = line(sign - 1).load(std::memory_order_relaxed);
    const process found(owner, home_ + sign * sizeof(arena_line),
                        line(sign).load(std::memory_order_relaxed));
    std::byte any[8];
    if (const std::error_code ec = found.read({any, sizeof any}, home_)) return ec;
    owner_ = found;
    return {};
  }
  static bool is_own(place lent) { return (lent & own_memory) != 0; }
  bool reads_owner() const { return owner_.is_known(); }
  std::error_code read(mutable_bytes into, place lent) const {
    return owner_.read(into, lent & ~own_memory);
  }
  /// How long that takes for `sample_bytes`.
  template <class Clock>
  time_point time_to_read(const Clock& now) const {
    return owner_.time_to_read(home_ + sample_at(ranks_), sample_bytes, now);
  }

 private:
  std::atomic<std::uint64_t>& line(std::size_t i) const {
    return reinterpret_cast<arena_line*>(all_.data())[i].word;
  }

  mapping all_;
  int ranks_ = 0;
  std::size_t mine_ = 0;
  std::uint64_t home_ = 0;  // where its owner has it, by that one's word
  process owner_;
};

}  // namespace colls::shm
