// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_heap: memory of one rank that its peers may read and write during an operation. This rank
// is the owner of the heap.
//
// The heap begins with an access guard (see os/access_guard.hpp), by which the owner ends the
// access of its peers. A peer stays inside the heap for a bounded amount of work. If the process of
// a peer is stopped there, the owner moves the memory to other pages.

#include <colls/os/access_guard.hpp>
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

/// An offset in a shared heap. The value 0 means no offset. If the bit `private_memory` is set, the
/// other bits are not an offset but the address of private memory of the owner. This memory lies
/// outside the heap, and peers may read it through the kernel (CMA, cross-memory attach).
using heap_offset = std::uint64_t;
inline constexpr heap_offset private_memory = heap_offset{1} << 63;

/// The size, in bytes, of the address range of a heap. The heap allocates a page of this range only
/// when it needs the page. An emulator (qemu-user) has a record of each page of the range, so the
/// range of tests in an emulator is smaller.
#ifdef COLLS_DETAIL_SHARED_HEAP_BYTES
inline constexpr std::size_t shared_heap_bytes = COLLS_DETAIL_SHARED_HEAP_BYTES;
#else
inline constexpr std::size_t shared_heap_bytes = std::size_t{1} << 36;
#endif

/// Returns the index of the cache line that holds the address at which the owner has mapped the
/// heap. The header of a heap has the following parts, in this order: the lines of the access
/// guard, which has a slot for each rank of the world, the line with the address, a line with a
/// nonce, and a sample. The nonce lets a peer check that it reads the memory of the owner's process
/// and not of another process. A peer reads the sample to measure how fast it can read the memory
/// of the owner.
constexpr std::size_t owner_line(int ranks) { return guard_lines(ranks); }
constexpr std::size_t sample_offset(int ranks) {
  return round_up_to_pages((owner_line(ranks) + 2) * sizeof(shared_line));
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
    guard_ = access_guard(reinterpret_cast<shared_line*>(lines_.data()), ranks);
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

  /// Allocates a block of `size` zero bytes. The block shares no page with any other block. Returns
  /// null in a forked child. If the allocation fails, returns null and, if `reason` is not null,
  /// stores the error in `*reason`.
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

  /// Returns the guard of this heap. The slot of a peer is its rank.
  access_guard& guard() { return guard_; }

  /// Moves the block that contains `data` to another offset in the heap. The contents of the block
  /// and its address in this process stay the same. If the process of a peer was stopped inside the
  /// heap and resumes after the move, the peer writes only to the old pages. These pages are never
  /// reused. Returns false if the heap is full or the system cannot move the pages.
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
    return reinterpret_cast<shared_line*>(lines_.data())[i].word;
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
  // Reserves a range of the heap and allocates its pages. Returns the offset of the range. Sets
  // `ec` if the range cannot be reserved or the pages cannot be allocated.
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
  // Maps a block into this process and records it in `blocks_`. Returns the address of the block.
  // On failure, sets `ec` and returns null.
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
  access_guard guard_;
};

/// The heap of a peer, mapped into this process.
class shared_heap_view {
 public:
  using guard_view = shm::guard_view;

  shared_heap_view() = default;
  shared_heap_view(const shared_heap_view&) = delete;
  shared_heap_view& operator=(const shared_heap_view&) = delete;
  ~shared_heap_view() { detail::fork_guard::remove(pages_.data()); }

  /// Maps `memory`, the heap of a peer, into this process. `rank` is this rank, and `ranks` is the
  /// number of ranks in the world. Returns `protocol_error` if `memory` does not have the size of a
  /// heap.
  std::error_code map(const segment& memory, int ranks, int rank) {
    ranks_ = ranks;
    if (memory.size() != shared_heap_bytes) return make_error_code(errc::protocol_error);
    if (const std::error_code ec = pages_.map_lazily(memory, shared_heap_bytes)) return ec;
    guard_ = guard_view(reinterpret_cast<shared_line*>(pages_.data()), ranks, rank);
    return detail::fork_guard::add(pages_.data(), shared_heap_bytes);
  }

  /// Returns the address in this process of the `size` bytes at `offset` in the peer's heap.
  /// Returns null if these bytes overlap the header or extend beyond the end of the heap.
  std::byte* at(heap_offset offset, std::size_t size) const {
    if (offset < heap_header_bytes(ranks_) || offset > shared_heap_bytes ||
        size > shared_heap_bytes - offset) {
      return nullptr;
    }
    return pages_.data() + offset;
  }

  /// Returns this rank's view of the guard of the peer's heap.
  const guard_view& guard() const { return guard_; }

  /// Enables `read` to read private memory of the process with the id `owner`. Returns an error if
  /// that memory cannot be read, or if that process did not create this heap.
  std::error_code attach_owner(pid_t owner) {
    const std::size_t nonce_line = owner_line(ranks_) + 1;
    owner_address_ = line(nonce_line - 1).load(std::memory_order_relaxed);
    const cross_memory_attach reader(owner, owner_address_ + nonce_line * sizeof(shared_line),
                                     line(nonce_line).load(std::memory_order_relaxed));
    std::byte sample[8];
    if (const std::error_code ec = reader.read({sample, sizeof sample}, owner_address_)) return ec;
    reader_ = reader;
    return {};
  }
  /// Returns whether `offset` holds the address of private memory instead of an offset in the heap.
  static bool is_private(heap_offset offset) { return (offset & private_memory) != 0; }
  bool can_read_owner() const { return reader_.is_known(); }
  /// Reads `out.size` bytes of the owner's private memory into `out`. `offset` holds the address of
  /// these bytes. Returns an error unless all bytes were read.
  std::error_code read(mutable_bytes out, heap_offset offset) const {
    return reader_.read(out, offset & ~private_memory);
  }
  /// Measures how long this rank takes to read `sample_bytes` bytes of the owner's memory by CMA.
  /// Returns this time, or `never` if the bytes cannot be read.
  template <class Clock>
  time_point time_to_read(const Clock& now) const {
    return reader_.time_to_read(owner_address_ + sample_offset(ranks_), sample_bytes, now);
  }

 private:
  std::atomic<std::uint64_t>& line(std::size_t i) const {
    return reinterpret_cast<shared_line*>(pages_.data())[i].word;
  }

  mapping pages_;
  int ranks_ = 0;
  guard_view guard_;
  std::uint64_t owner_address_ = 0;  // the address at which the owner has mapped the heap
  cross_memory_attach reader_;
};

}  // namespace colls::shm
