// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_heap: memory of one rank, its owner, that the peers may read and write during an
// operation.
//
// An operation that exposes its buffers opens a remote key in the heap of its rank. Before a peer
// accesses the buffers, it marks itself as inside the heap by setting its own cache line there, and
// checks that the key is still open. The peer removes the mark after a bounded amount of work. To
// end all access, the owner revokes the key and then waits until no peer is inside.

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

/// An offset in a shared heap, or 0 for none. If the bit `private_memory` is set, the other bits
/// are the address of private memory of the owner, outside of the heap, that peers may read through
/// the kernel (CMA, cross-memory attach).
using heap_offset = std::uint64_t;
inline constexpr heap_offset private_memory = heap_offset{1} << 63;
/// A key that permits peers to access what an operation exposes, as long as the key is open. The
/// value 0 means no key.
using remote_key = std::uint64_t;

/// The size of the address space of a heap. Pages are allocated as needed.
inline constexpr std::size_t shared_heap_bytes = std::size_t{1} << 36;
inline constexpr std::size_t max_remote_keys = 256;

struct alignas(64) heap_line {
  std::atomic<std::uint64_t> word;
};

/// Returns the index of the line that holds the address at which the owner has mapped the heap. The
/// header of a heap begins with one cache line for each rank of the world and one for each remote
/// key. These are followed by the line with the address, a line with a nonce by which peers
/// recognize the owner's process, and a sample that peers read to measure how fast they can read
/// the owner's memory.
constexpr std::size_t owner_line(int ranks) {
  return static_cast<std::size_t>(ranks) + max_remote_keys;
}
constexpr std::size_t sample_offset(int ranks) {
  return round_up_to_pages((owner_line(ranks) + 2) * sizeof(heap_line));
}
inline constexpr std::size_t sample_bytes = 64 * 1024;
static_assert(sample_bytes % max_page_size == 0 && shared_heap_bytes % max_page_size == 0);
constexpr std::size_t heap_header_bytes(int ranks) { return sample_offset(ranks) + sample_bytes; }

/// The shared heap of this rank.
class shared_heap {
 public:
  shared_heap() = default;
  shared_heap(const shared_heap&) = delete;
  shared_heap& operator=(const shared_heap&) = delete;
  ~shared_heap() { detail::fork_guard::remove(lines_.data()); }

  /// Creates the heap for a world of `ranks` ranks.
  std::error_code make(int ranks) {
    ranks_ = ranks;
    const std::size_t head = heap_header_bytes(ranks);
    if (const std::error_code ec = memory_.make_unbacked(shared_heap_bytes)) return ec;
    if (const std::error_code ec = memory_.fill(0, head)) return ec;
    if (const std::error_code ec = lines_.map(memory_, 0, head)) return ec;
    if (const auto ec = detail::fork_guard::add(lines_.data(), head)) return ec;
    std::uint64_t nonce = 0;
    if (::getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return detail::last_error();
    line(owner_line(ranks))
        .store(reinterpret_cast<std::uintptr_t>(lines_.data()), std::memory_order_relaxed);
    line(owner_line(ranks) + 1).store(nonce, std::memory_order_relaxed);
    return {};
  }
  const segment& memory() const { return memory_; }
  /// Returns whether this process created the heap. Returns false in a forked child. Only the
  /// creator may expose memory, because peers access the memory of the creator and not that of a
  /// child.
  bool is_creator_process() const { return detail::fork_guard::forks() == forks_; }

  /// Allocates a block of `size` zero bytes on separate pages. Returns null in a forked child, or
  /// if the memory cannot be allocated. In the latter case, sets `*reason` to the error.
  std::byte* allocate(std::size_t size, std::error_code* reason = nullptr) {
    if (!is_creator_process()) return nullptr;
    std::error_code ec;
    block result;
    result.size = round_up_to_pages(size);
    result.offset = allocate_pages(result.size, ec);
    const heap_offset offset = result.offset;
    std::byte* data = nullptr;
    if (!ec) {
      data = map_block(std::move(result), ec);
      if (ec) release(offset);
    }
    if (ec && reason != nullptr) *reason = ec;
    return data;
  }
  /// Frees the block at `data`. No open key may expose the block.
  void free(std::byte* data) {
    const auto found = blocks_.find(data);
    release(found->second.offset);
    blocks_.erase(found);
  }

  /// Returns the offset of `data` in the heap, or 0 if `data` is empty or does not lie within one
  /// block.
  heap_offset locate(const_bytes data) const {
    auto found = blocks_.upper_bound(data.data);
    if (found == blocks_.begin() || data.size == 0) return 0;
    const auto& [begin, found_block] = *--found;
    const auto offset = static_cast<std::size_t>(data.data - begin);
    const bool fits = offset <= found_block.size && data.size <= found_block.size - offset;
    return fits ? found_block.offset + offset : 0;
  }

  /// Returns whether both addresses lie in the same block.
  bool is_same_block(const std::byte* one, const std::byte* other) const {
    const auto found = blocks_.upper_bound(one);
    return found != blocks_.begin() && found == blocks_.upper_bound(other);
  }

  /// Opens a remote key. Returns 0 if no key is free.
  remote_key open_key() {
    for (std::size_t i = 0; i < max_remote_keys; ++i) {
      const std::size_t slot = (next_ + i) % max_remote_keys;
      std::atomic<std::uint64_t>& word = line(static_cast<std::size_t>(ranks_) + slot);
      if (word.load(std::memory_order_relaxed) != 0) continue;
      next_ = slot + 1;
      const remote_key key = ++opened_ * max_remote_keys + slot;
      word.store(key, std::memory_order_release);
      return key;
    }
    return 0;
  }
  /// Closes a key. Called when all peers have reported that they are done.
  void close_key(remote_key key) {
    line(static_cast<std::size_t>(ranks_) + key % max_remote_keys)
        .store(0, std::memory_order_release);
  }
  /// Closes a key that peers may still be using. After this call, only a peer that is already
  /// inside can still access what the key exposes.
  void revoke_key(remote_key key) {
    close_key(key);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  /// Returns whether the peer `rank` has marked itself as inside. The mark does not tell which key
  /// the peer uses.
  bool is_inside(int rank) {
    return line(static_cast<std::size_t>(rank)).load(std::memory_order_acquire) != 0;
  }

  /// Moves the block that contains `data` to another offset in the heap. The contents of the block
  /// and its address in this process stay the same. A peer that has been suspended inside the heap
  /// then writes, when it resumes, only to the old pages, which are never reused. Returns false if
  /// the heap is full or the system cannot move the pages.
  bool relocate(const std::byte* data) {
    auto found = blocks_.upper_bound(data);
    if (found == blocks_.begin()) return true;
    block& old = (--found)->second;
    const heap_offset target = reserve(old.size);
    if (target == 0) return false;
    if (!old.pages.move(memory_, old.offset, target)) {
      release(target);
      return false;
    }
    old.offset = target;
    return true;
  }

 private:
  struct block {
    heap_offset offset = 0;
    std::size_t size = 0;
    mapping pages;
  };

  std::atomic<std::uint64_t>& line(std::size_t i) {
    return reinterpret_cast<heap_line*>(lines_.data())[i].word;
  }

  // Returns the offset of the first gap of at least `size` bytes, or 0 if there is none.
  heap_offset find_gap(std::size_t size) const {
    heap_offset offset = heap_header_bytes(ranks_);
    for (const auto& [begin, length] : used_) {
      if (begin - offset >= size) return offset;
      offset = begin + length;
    }
    return size <= shared_heap_bytes - offset ? offset : 0;
  }
  // Reserves a range of the heap without allocating its pages. Returns the offset of the range, or
  // 0 if there is no room.
  heap_offset reserve(std::size_t size) {
    const heap_offset offset = find_gap(size);
    if (offset == 0) return 0;
    try {
      used_.emplace(offset, size);
    } catch (const std::bad_alloc&) {
      return 0;
    }
    return offset;
  }
  // Reserves a range of the heap and allocates its pages. Returns the offset of the range, or sets
  // `ec` if this fails.
  heap_offset allocate_pages(std::size_t size, std::error_code& ec) {
    const heap_offset offset = reserve(size);
    if (offset == 0) {
      ec = std::make_error_code(std::errc::not_enough_memory);
      return 0;
    }
    ec = memory_.fill(offset, size);
    if (ec) used_.erase(offset);
    return offset;
  }
  // Maps a block into this process and records it in `blocks_`. Returns the address of the block,
  // or null after setting `ec`.
  std::byte* map_block(block added, std::error_code& ec) {
    ec = added.pages.map(memory_, added.offset, added.size);
    if (ec) return nullptr;
    std::byte* const data = added.pages.data();
    try {
      blocks_.emplace(data, std::move(added));
    } catch (const std::bad_alloc&) {
      ec = std::make_error_code(std::errc::not_enough_memory);
      return nullptr;
    }
    return data;
  }
  void release(heap_offset offset) {
    const auto found = used_.find(offset);
    // If the system cannot free the pages, the range is not reused, because its pages may contain
    // bytes other than zero.
    if (is_creator_process() && memory_.release(offset, found->second)) return;
    used_.erase(found);
  }

  segment memory_;
  mapping lines_;
  int ranks_ = 0;
  unsigned forks_ = detail::fork_guard::forks();
  std::map<const std::byte*, block> blocks_;
  std::map<heap_offset, std::size_t> used_;  // used ranges and the old ranges of relocated blocks
  std::uint64_t opened_ = 0;
  std::size_t next_ = 0;
};

/// The heap of a peer, mapped into this process.
class shared_heap_view {
 public:
  shared_heap_view() = default;
  shared_heap_view(const shared_heap_view&) = delete;
  shared_heap_view& operator=(const shared_heap_view&) = delete;
  ~shared_heap_view() { detail::fork_guard::remove(pages_.data()); }

  /// Maps `memory`, the heap of a peer, into the process of this rank, which is rank `rank` of
  /// `ranks`. Returns `protocol_error` if `memory` does not have the size of a heap.
  std::error_code map(const segment& memory, int ranks, int rank) {
    ranks_ = ranks;
    rank_line_ = static_cast<std::size_t>(rank);
    if (memory.size() != shared_heap_bytes) return make_error_code(errc::protocol_error);
    if (const std::error_code ec = pages_.map_lazily(memory, shared_heap_bytes)) return ec;
    return detail::fork_guard::add(pages_.data(), shared_heap_bytes);
  }

  /// Returns the address at which this process has mapped `size` bytes at `offset`. Returns null if
  /// these bytes overlap the header or exceed the heap.
  std::byte* at(heap_offset offset, std::size_t size) const {
    if (offset < heap_header_bytes(ranks_) || offset > shared_heap_bytes ||
        size > shared_heap_bytes - offset) {
      return nullptr;
    }
    return pages_.data() + offset;
  }

  /// Marks this rank as inside. Must be called before any access. A sequentially consistent fence
  /// must come between `enter` and `is_open`.
  void enter() { line(rank_line_).store(1, std::memory_order_relaxed); }
  /// Returns whether the key is open.
  bool is_open(remote_key key) const {
    return line(static_cast<std::size_t>(ranks_) + key % max_remote_keys)
               .load(std::memory_order_acquire) == key;
  }
  /// Removes the mark of this rank. Must be called after the last access.
  void leave() { line(rank_line_).store(0, std::memory_order_release); }

  /// Enables `read` to read private memory of the process `owner`. Returns an error if that memory
  /// cannot be read, or if `owner` is not the process that created this heap.
  std::error_code attach_owner(pid_t owner) {
    const std::size_t nonce_line = owner_line(ranks_) + 1;
    owner_address_ = line(nonce_line - 1).load(std::memory_order_relaxed);
    const cross_memory_attach reader(owner, owner_address_ + nonce_line * sizeof(heap_line),
                                     line(nonce_line).load(std::memory_order_relaxed));
    std::byte sample[8];
    if (const std::error_code ec = reader.read({sample, sizeof sample}, owner_address_)) return ec;
    reader_ = reader;
    return {};
  }
  /// Returns whether `offset` holds the address of private memory instead of an offset in the heap.
  static bool is_private(heap_offset offset) { return (offset & private_memory) != 0; }
  bool can_read_owner() const { return reader_.is_known(); }
  /// Reads private memory of the owner at `offset` into `out`. Returns an error unless all bytes
  /// were read.
  std::error_code read(mutable_bytes out, heap_offset offset) const {
    return reader_.read(out, offset & ~private_memory);
  }
  /// Returns the time that it takes to read `sample_bytes` bytes from the owner, or `never` if they
  /// cannot be read.
  template <class Clock>
  time_point time_to_read(const Clock& now) const {
    return reader_.time_to_read(owner_address_ + sample_offset(ranks_), sample_bytes, now);
  }

 private:
  std::atomic<std::uint64_t>& line(std::size_t i) const {
    return reinterpret_cast<heap_line*>(pages_.data())[i].word;
  }

  mapping pages_;
  int ranks_ = 0;
  std::size_t rank_line_ = 0;
  std::uint64_t owner_address_ = 0;  // the address at which the owner has mapped the heap
  cross_memory_attach reader_;
};

}  // namespace colls::shm
