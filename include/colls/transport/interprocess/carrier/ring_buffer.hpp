// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring_buffer: carries frames from one process to another through memory that both have mapped.
//
// Each frame takes a slot, which is one cache line with its own sequence number. A short payload
// lies in the slot itself, so only one cache line moves from core to core. A longer payload lies in
// a ring of bytes next to the slots. The writer stores the sequence number of a slot last. When the
// reader sees that number, the slot and its payload bytes in the ring are therefore complete. Only
// the writer writes the slots, and only the reader writes the cache line that contains its
// progress. If checksums are enabled, each slot contains a checksum of the slot and of its payload
// bytes in the ring.
//
// Before a rank sleeps, it sets a flag and then looks once more for what it waits for. After its
// peer has written or released something, the peer looks at the flag. A fence on each side, between
// the store and the load, ensures that one of the two sees what the other has stored. The model
// tests/model/ring_buffer.pml has steps with the names that the comments below give them.

#include <colls/base/cache_lines.hpp>
#include <colls/os/crc32c.hpp>
#include <colls/os/fork_guard.hpp>
#include <colls/os/shared_memory.hpp>
#include <colls/transport/interprocess/frame.hpp>

#include <algorithm>
#include <atomic>
#include <bit>

namespace colls::shm {

/// The number of slots in each direction of a connection.
inline constexpr std::size_t slots = 512;
/// The minimum and maximum length of a ring of bytes. The length is a power of two. Together, the
/// rings from which a rank reads should be longer than the private cache of its core. The core then
/// evicts the bytes that the rank has read before the writer overwrites them, and the writer need
/// not wait for these cache lines. If several ranks share a core, longer rings also reduce the
/// number of context switches.
inline constexpr std::size_t min_ring_buffer_bytes = 256 * 1024;
inline constexpr std::size_t max_ring_buffer_bytes = 2 * 1024 * 1024;
/// The number of payload bytes for which a slot has room. If checksums are enabled, the last four
/// of these bytes hold the checksum.
inline constexpr std::size_t max_inline_bytes = 24;
/// The maximum length of the pieces into which `write_frames` splits a queued payload. Each piece
/// has a slot of its own. The reader can therefore copy one piece while the writer writes the next
/// one. `shared_memory_pipe::try_send` writes a longer eager message with a single slot.
inline constexpr std::size_t max_piece_bytes = 32 * 1024;

struct alignas(64) slot {
  std::atomic<std::uint32_t> number;  // the sequence number, from 1; stored last
  std::uint32_t piece;                // the number of bytes that the slot adds to the ring
  interprocess::header frame;         // a kind of 0 means more payload of the previous frame
  std::byte data[max_inline_bytes];
};
static_assert(sizeof(slot) == 64);
/// The offset of the checksum in `slot::data`.
inline constexpr std::size_t checksum_offset = max_inline_bytes - sizeof(std::uint32_t);

/// Copies `size` bytes that a peer may be changing at the same time. Reads each byte only once. The
/// caller can then check the copy, which the peer cannot change.
[[gnu::always_inline]] inline void copy_once(void* dest, const void* source, std::size_t size) {
  // The types are unaligned, because payloads follow each other in the ring without padding.
  using word64 [[gnu::may_alias, gnu::aligned(1)]] = std::uint64_t;
  using word32 [[gnu::may_alias, gnu::aligned(1)]] = std::uint32_t;
  auto* out = static_cast<std::byte*>(dest);
  const auto* in = static_cast<const volatile std::byte*>(source);
  const auto copy = [&](auto value) {
    std::memcpy(out, &value, sizeof value);
    out += sizeof value;
    in += sizeof value;
    size -= sizeof value;
  };
#pragma GCC unroll 4
  while (size >= sizeof(word64)) copy(*reinterpret_cast<const volatile word64*>(in));
  if (size >= sizeof(word32)) copy(*reinterpret_cast<const volatile word32*>(in));
  while (size > 0) copy(*in);
}
/// Returns a copy of `shared`, made by `copy_once`.
template <class T>
[[gnu::always_inline]] inline T load_once(const T& shared) {
  T copy;
  copy_once(&copy, &shared, sizeof copy);
  return copy;
}

/// The numbers of slots and bytes that the reader has released. The reader writes these numbers,
/// and the writer reads them to find free space. They have a cache line of their own.
struct alignas(128) reader_line {
  std::atomic<std::uint64_t> slots_done;
  std::atomic<std::uint64_t> bytes_done;
};
/// A cache line that tells the writer whether the reader sleeps and must be woken.
struct alignas(128) sleeper_line {
  std::atomic<std::uint32_t> asleep;
};

/// The layout of one direction of a connection in the shared memory segment. The ring of bytes
/// follows this object.
struct direction {
  reader_line reader;
  sleeper_line sleeper;  // whether the reader's process sleeps
  alignas(4096) slot all[slots];
};
inline constexpr std::size_t direction_bytes = round_up_to_pages(sizeof(direction));
static_assert(min_ring_buffer_bytes % max_page_size == 0);
/// Returns the size of the shared memory segment of a connection. The segment holds both
/// directions, each with a ring of `ring` bytes.
constexpr std::size_t connection_bytes(std::size_t ring) { return 2 * (direction_bytes + ring); }

/// Returns the length of each ring of bytes if `ranks` ranks run on this host. `oversubscribed`
/// must be true if there are more ranks than cores.
constexpr std::size_t ring_buffer_bytes_for(int ranks, bool oversubscribed) {
  const std::size_t total = oversubscribed ? 16 << 20 : 4 << 20;
  std::size_t ring = min_ring_buffer_bytes;
  while (ring < max_ring_buffer_bytes && ring * static_cast<std::size_t>(ranks) < total) ring *= 2;
  return ring;
}

/// One end of a connection through shared memory. It maps the memory, writes one direction and
/// reads the other one. No function waits for the peer.
class ring_buffer {
 public:
  /// Constructs one end of a connection that is not mapped yet. If `checks` is true, each slot
  /// contains a checksum. In each direction, the number of the first slot is `first_slot + 1`.
  explicit ring_buffer(bool checks = false, std::uint64_t first_slot = 0)
      : inline_bytes_(checks ? checksum_offset : max_inline_bytes),
        slots_written_(first_slot),
        slots_done_(first_slot),
        slots_read_(first_slot),
        slots_published_(first_slot) {}
  ring_buffer(const ring_buffer&) = delete;
  ring_buffer& operator=(const ring_buffer&) = delete;
  ~ring_buffer() {
    for_each_mapping([](std::byte* data, std::size_t) { detail::fork_guard::remove(data); });
  }

  /// Returns the length of the longest payload that fits into a slot.
  std::size_t inline_bytes() const { return inline_bytes_; }

  /// Maps the segment of a connection. This process writes the direction `side`, which is 0 or 1,
  /// and reads the other one. Returns `protocol_error` if the segment has an invalid size.
  std::error_code map(const segment& memory, int side) {
    const std::size_t half = memory.size() / 2;
    ring_bytes_ = half - direction_bytes;
    if (half <= direction_bytes || ring_bytes_ < min_ring_buffer_bytes ||
        ring_bytes_ > max_ring_buffer_bytes || !std::has_single_bit(ring_bytes_)) {
      return make_error_code(errc::protocol_error);
    }
    const auto start = [half](int number) { return static_cast<std::size_t>(number) * half; };
    for (int number : {side, 1 - side}) {
      const int i = number == side ? 0 : 1;
      if (const auto ec = lines_[i].map(memory, start(number), direction_bytes)) return ec;
      if (const auto ec = bytes_[i].map(memory, start(number) + direction_bytes, ring_bytes_, 2)) {
        return ec;
      }
    }
    std::error_code ec;
    for_each_mapping([&](std::byte* data, std::size_t size) {
      if (!ec) ec = detail::fork_guard::add(data, size);
    });
    return ec;
  }

  // ---- writing

  /// Returns how many bytes of the ring this rank, the writer, knows to be free. Reads the progress
  /// of the reader from shared memory only if fewer than `wanted` bytes are known to be free.
  std::size_t room(std::size_t wanted) {
    if (ring_bytes_ - (bytes_written_ - bytes_done_) < wanted) {
      bytes_done_ = out().reader.bytes_done.load(std::memory_order_acquire);
    }
    return ring_bytes_ - static_cast<std::size_t>(bytes_written_ - bytes_done_);
  }
  /// Returns whether a slot is free.
  bool has_slot() {
    if (slots_written_ - slots_done_ < slots) return true;
    slots_done_ =
        out().reader.slots_done.load(std::memory_order_acquire);  // Model step: read_progress
    return slots_written_ - slots_done_ < slots;
  }

  /// Writes a slot with the header `frame` and the next `size` bytes of the payload, which begin at
  /// `data`. The kind of `frame` is 0 if these bytes continue the payload of the previous frame.
  /// The caller must have checked that a slot is free. Unless the whole payload fits into the slot,
  /// the caller must also have checked that the ring has room for `size` bytes.
  void write(const interprocess::header& frame, const std::byte* data, std::size_t size) {
    slot& next = out().all[slots_written_ % slots];
    std::memcpy(static_cast<void*>(&next.frame), &frame, sizeof frame);
    const std::byte* piece = nullptr;
    if (size <= inline_bytes_ && frame.length == size) {
      next.piece = 0;
      if (size != 0) std::memcpy(next.data, data, size);
    } else {
      next.piece = static_cast<std::uint32_t>(size);
      std::byte* const dest = bytes_[0].data() + bytes_written_ % ring_bytes_;
      if (size != 0) std::memcpy(dest, data, size);  // Model step: write_payload
      piece = dest;
      bytes_written_ += size;
      prefetched_ = std::max(prefetched_, bytes_written_ / 64 * 64);
      prefetch_end_ =
          std::min(bytes_written_ + std::min(size, max_prefetch), bytes_done_ + ring_bytes_);
    }
    ++slots_written_;
    if (has_checksums()) {
      const std::uint32_t sum = checksum_of(next, slots_written_, next.piece, piece);
      std::memcpy(next.data + checksum_offset, &sum, sizeof sum);
    }
    // Model step: write_number
    next.number.store(static_cast<std::uint32_t>(slots_written_), std::memory_order_release);
    progressed_ = true;
  }

  /// Prefetches a few of the cache lines that this rank will probably write next. Called when this
  /// rank has nothing to read. The next write then need not wait for these cache lines.
  void prefetch_for_write() {
    for (int lines = 4; lines > 0 && prefetched_ < prefetch_end_; --lines, prefetched_ += 64) {
      prefetch_line(bytes_[0].data() + prefetched_ % ring_bytes_);
    }
  }

  // ---- reading

  /// Returns the next slot to read, or null if the peer has not written it yet.
  const slot* front() const {
    const slot& next = in().all[slots_read_ % slots];
    return next.number.load(std::memory_order_acquire) ==  // Model step: front_number
                   static_cast<std::uint32_t>(slots_read_ + 1)
               ? &next
               : nullptr;
  }
  /// Returns whether the checksum in `next` is correct. `next` must be the front slot. The checksum
  /// covers the slot and its payload bytes in the ring. If checksums are not enabled, returns true.
  bool is_intact(const slot& next) const {
    if (!has_checksums()) return true;
    const std::size_t piece = load_once(next.piece);
    std::uint32_t sum = 0;
    std::memcpy(&sum, next.data + checksum_offset, sizeof sum);
    return piece <= ring_bytes_ - readable_ &&
           sum == checksum_of(next, slots_read_ + 1, piece, data() + readable_);
  }
  /// Returns whether the front slot has one of its two possible sequence numbers. If the peer has
  /// written the slot, this is the sequence number that the reader expects next. Otherwise, it is
  /// the number from the slot's previous use, or 0. If checksums are not enabled, returns true.
  bool has_valid_number() const {
    if (!has_checksums()) return true;
    const std::uint64_t previous = slots_read_ < slots ? 0 : slots_read_ + 1 - slots;
    const auto number = in().all[slots_read_ % slots].number.load(std::memory_order_relaxed);
    return number == static_cast<std::uint32_t>(previous) ||
           number == static_cast<std::uint32_t>(slots_read_ + 1);
  }
  /// Removes the front slot. `piece` is the number of payload bytes of this slot that lie in the
  /// ring. These bytes become readable. Returns false and does nothing if the number of
  /// readable bytes would then exceed the size of the ring.
  bool pop(std::size_t piece) {
    if (piece > ring_bytes_ - readable_) return false;
    readable_ += piece;
    ++slots_read_;
    return true;
  }
  // Model step: front_payload reads what lies at `data()` before `take` releases it.

  /// Returns the number of readable bytes, which begin at `data()`. These are the payload bytes of
  /// the removed slots, except those that this rank has released by `take`.
  std::size_t readable() const { return readable_; }
  const std::byte* data() const { return bytes_[1].data() + bytes_read_ % ring_bytes_; }
  /// Releases the first `size` readable bytes, so that the peer may overwrite them.
  void take(std::size_t size) {
    detail::touch_lines(bytes_[1].data() + bytes_read_ % ring_bytes_, size);
    readable_ -= size;
    bytes_read_ += size;
    if (bytes_read_ - bytes_published_ >= ring_bytes_ / 4 ||
        slots_read_ - slots_published_ >= slots / 4) {
      publish();
    }
  }
  /// Tells the peer how many slots and bytes this rank has released. Does nothing if this rank has
  /// released fewer than a quarter of the slots since it last told the peer.
  void publish_if_due() {
    if (slots_read_ - slots_published_ >= slots / 4) publish();
  }

  // ---- sleeping

  /// Asks the peer to wake this process the next time that the peer writes a frame or releases
  /// space. Returns false if a slot is ready to be read. In that case, this process must not sleep.
  bool request_wake() {
    in().sleeper.asleep.store(1, std::memory_order_relaxed);  // Model step: request_flag
    std::atomic_thread_fence(std::memory_order_seq_cst);      // Model step: request_fence
    return front() == nullptr;                                // Model step: request_front_check
  }
  /// Withdraws the request that `request_wake` made.
  void cancel_wake() {
    in().sleeper.asleep.store(0, std::memory_order_relaxed);  // Model step: cancel_flag
  }
  /// Returns true if the peer has asked to be woken and this rank has written a frame or released
  /// space since the previous call of this function. In that case, removes the peer's request. The
  /// caller must then wake the peer.
  bool take_wake_request() {
    if (!std::exchange(progressed_, false)) return false;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // Model step: wake_fence
    std::atomic<std::uint32_t>& asleep = out().sleeper.asleep;
    return asleep.load(std::memory_order_relaxed) != 0 &&       // Model step: wake_check
           asleep.exchange(0, std::memory_order_relaxed) != 0;  // Model step: wake_exchange
  }

 private:
  bool has_checksums() const { return inline_bytes_ != max_inline_bytes; }
  // Returns the checksum of a slot with the sequence number `number`, and of the slot's payload
  // bytes in the ring, which are the `size` bytes at `added`. The checksum does not cover the field
  // in which the slot stores it.
  static std::uint32_t checksum_of(const slot& checked_slot, std::uint64_t number, std::size_t size,
                                   const std::byte* added) {
    constexpr std::size_t checked = offsetof(slot, data) + checksum_offset - offsetof(slot, piece);
    const std::uint32_t sum =
        detail::crc32c(static_cast<std::uint32_t>(number), &checked_slot.piece, checked);
    return detail::crc32c(sum, added, size);
  }

  template <class Visit>
  void for_each_mapping(Visit visit) const {
    for (const mapping& lines : lines_) visit(lines.data(), direction_bytes);
    for (const mapping& bytes : bytes_) visit(bytes.data(), 2 * ring_bytes_);
  }

  direction& out() const { return *reinterpret_cast<direction*>(lines_[0].data()); }
  direction& in() const { return *reinterpret_cast<direction*>(lines_[1].data()); }

  // The maximum number of bytes that this rank prefetches for its next payload. This rank assumes
  // that the next payload is as long as the last one, but never prefetches more than this.
  static constexpr std::size_t max_prefetch = 16 * 1024;
  static void prefetch_line(const std::byte* line) {
#if defined(__x86_64__)
    // `__builtin_prefetch` emits `prefetchw` only for some target processors, so inline assembly
    // is needed. A processor that does not support this instruction treats it as a no-op.
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }

  void publish() {
    reader_line& line = in().reader;
    slots_published_ = slots_read_;
    bytes_published_ = bytes_read_;
    line.slots_done.store(slots_published_,
                          std::memory_order_release);  // Model step: publish_progress
    line.bytes_done.store(bytes_published_, std::memory_order_release);
    progressed_ = true;
  }

  mapping lines_[2];  // the direction that this side writes, then the one that it reads
  mapping bytes_[2];
  std::size_t ring_bytes_ = 0;
  std::size_t inline_bytes_;
  std::uint64_t slots_written_;
  std::uint64_t slots_done_;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t prefetched_ = 0;  // cache lines before this offset were written or prefetched
  std::uint64_t prefetch_end_ = 0;
  std::uint64_t slots_read_;
  std::uint64_t slots_published_;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_published_ = 0;
  std::size_t readable_ = 0;
  bool progressed_ = false;
};

}  // namespace colls::shm
