// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring: frames from one process to another through memory that both have mapped.
//
// A frame takes a slot, one cache line that carries its own number, so that a short message is one
// line that moves once. Longer payload lies in a ring of bytes beside the slots; what a slot adds
// to it is whole when the slot's number is there. Every line has one writer. Where ranks agreed on
// checksums a slot ends with that of itself and of what it adds to the ring of bytes.

#include <colls/base/cache_lines.hpp>
#include <colls/os/crc32c.hpp>
#include <colls/os/fork_guard.hpp>
#include <colls/os/shared_memory.hpp>
#include <colls/transport/interprocess/frame.hpp>

#include <algorithm>
#include <atomic>
#include <bit>

namespace colls::shm {

inline constexpr std::size_t slots = 512;
/// A ring of bytes is a power of two between these. All rings into a rank together are longer than
/// its own cache, so that what it has read has left that before it is written again: a write to a
/// line that another core still holds takes three times as long. And ranks that share a core take
/// turns less often with longer ones.
inline constexpr std::size_t shortest_ring = 256 * 1024;
inline constexpr std::size_t longest_ring = 2 * 1024 * 1024;
/// Longest payload in the slot itself, without a checksum.
inline constexpr std::size_t longest_inline = 24;
/// Longest piece of a payload that is told at once: the reader works on one while the next is
/// written.
inline constexpr std::size_t longest_piece = 32 * 1024;

struct alignas(64) slot {
  std::atomic<std::uint32_t> number;  // of the frame, from 1: the line is whole
  std::uint32_t piece;                // bytes that it adds to the ring of bytes
  tcp::header frame;                  // kind 0: only goes on with the payload before
  std::byte data[longest_inline];
};
static_assert(sizeof(slot) == 64);
/// Where the checksum lies in `slot::data`.
inline constexpr std::size_t checksum_at = longest_inline - sizeof(std::uint32_t);

/// Copies what a peer may be writing at this moment. It is read once: what is judged afterwards is
/// what is used.
[[gnu::always_inline]] inline void fetch(void* into, const void* from, std::size_t size) {
  // At any address: the payload of a frame follows that of another.
  using word [[gnu::may_alias, gnu::aligned(1)]] = std::uint64_t;
  using half [[gnu::may_alias, gnu::aligned(1)]] = std::uint32_t;
  auto* to = static_cast<std::byte*>(into);
  const auto* at = static_cast<const volatile std::byte*>(from);
  const auto copy = [&](auto read) {
    std::memcpy(to, &read, sizeof read);
    to += sizeof read;
    at += sizeof read;
    size -= sizeof read;
  };
#pragma GCC unroll 4
  while (size >= sizeof(word)) copy(*reinterpret_cast<const volatile word*>(at));
  if (size >= sizeof(half)) copy(*reinterpret_cast<const volatile half*>(at));
  while (size > 0) copy(*at);
}
template <class T>
[[gnu::always_inline]] inline T fetched(const T& shared) {
  T copy;
  fetch(&copy, &shared, sizeof copy);
  return copy;
}

/// What the reader has done with, and whether it sleeps: then whoever moves something wakes it.
struct alignas(128) reader_line {
  std::atomic<std::uint64_t> slots_done;
  std::atomic<std::uint64_t> bytes_done;
};
struct alignas(128) sleeper_line {
  std::atomic<std::uint32_t> asleep;
};

/// One direction as it lies in the segment.
struct direction {
  reader_line reader;
  sleeper_line sleeper;  // the reader's side
  alignas(4096) slot all[slots];
};
inline constexpr std::size_t direction_bytes = whole_pages(sizeof(direction));
static_assert(shortest_ring % longest_page == 0);
constexpr std::size_t link_bytes(std::size_t ring) { return 2 * (direction_bytes + ring); }

/// For so many ranks of one host, which may outnumber the cores that they share.
constexpr std::size_t ring_for(int ranks, bool shares_cores) {
  const std::size_t bytes_in_all = shares_cores ? 16 << 20 : 4 << 20;
  std::size_t ring = shortest_ring;
  while (ring < longest_ring && ring * static_cast<std::size_t>(ranks) < bytes_in_all) ring *= 2;
  return ring;
}

/// This process's end of both directions.
class ring {
 public:
  /// `checks`: each slot has a checksum. `before`: so many frames went each way already.
  explicit ring(bool checks = false, std::uint64_t before = 0)
      : inline_(checks ? checksum_at : longest_inline),
        slots_written_(before),
        slots_done_(before),
        slots_read_(before),
        slots_told_(before) {}
  ring(const ring&) = delete;
  ring& operator=(const ring&) = delete;
  ~ring() {
    each_mapping([](std::byte* at, std::size_t) { detail::kept_from_children::remove(at); });
  }

  /// Longest payload in a slot.
  std::size_t inline_bytes() const { return inline_; }

  /// `side` 0 or 1: which of the two directions this process writes.
  std::error_code map(const segment& from, int side) {
    const std::size_t half = from.size() / 2;
    bytes_in_ring_ = half - direction_bytes;
    if (half <= direction_bytes || bytes_in_ring_ < shortest_ring ||
        bytes_in_ring_ > longest_ring || !std::has_single_bit(bytes_in_ring_)) {
      return make_error_code(errc::protocol_error);
    }
    const auto start = [half](int which) { return static_cast<std::size_t>(which) * half; };
    for (int which : {side, 1 - side}) {
      const int mine = which == side ? 0 : 1;
      if (const auto ec = lines_[mine].map(from, start(which), direction_bytes)) return ec;
      if (const auto ec =
              bytes_[mine].map(from, start(which) + direction_bytes, bytes_in_ring_, 2)) {
        return ec;
      }
    }
    std::error_code ec;
    each_mapping([&](std::byte* at, std::size_t size) {
      if (!ec) ec = detail::kept_from_children::add(at, size);
    });
    return ec;
  }

  // ---- writing

  /// Room for bytes now; `wanted` of them would do.
  std::size_t room(std::size_t wanted) {
    if (bytes_in_ring_ - (bytes_written_ - bytes_done_) < wanted) {
      bytes_done_ = out().reader.bytes_done.load(std::memory_order_acquire);
    }
    return bytes_in_ring_ - static_cast<std::size_t>(bytes_written_ - bytes_done_);
  }
  bool has_slot() {
    if (slots_written_ - slots_done_ < slots) return true;
    slots_done_ = out().reader.slots_done.load(std::memory_order_acquire);
    return slots_written_ - slots_done_ < slots;
  }

  /// Writes a frame with `size` bytes of its payload; the caller has asked for a slot and, unless
  /// they fit into it, for room.
  void write(const tcp::header& frame, const std::byte* data, std::size_t size) {
    slot& next = out().all[slots_written_ % slots];
    std::memcpy(static_cast<void*>(&next.frame), &frame, sizeof frame);
    const std::byte* piece = nullptr;
    if (size <= inline_ && frame.length == size) {
      next.piece = 0;
      if (size != 0) std::memcpy(next.data, data, size);
    } else {
      next.piece = static_cast<std::uint32_t>(size);
      std::byte* const at = bytes_[0].data() + bytes_written_ % bytes_in_ring_;
      if (size != 0) std::memcpy(at, data, size);
      piece = at;
      bytes_written_ += size;
      owned_ = std::max(owned_, bytes_written_ / 64 * 64);
      own_to_ =
          std::min(bytes_written_ + std::min(size, longest_owned), bytes_done_ + bytes_in_ring_);
    }
    ++slots_written_;
    if (has_checksums()) {
      const std::uint32_t sum = sum_of(next, slots_written_, next.piece, piece);
      std::memcpy(next.data + checksum_at, &sum, sizeof sum);
    }
    next.number.store(static_cast<std::uint32_t>(slots_written_), std::memory_order_release);
    told_ = true;
  }

  /// For who has nothing to do but wait: gets a few of the lines that it will write next, which
  /// take as long as those of a message when they are asked for by the write.
  void own_some() {
    for (int lines = 4; lines > 0 && owned_ < own_to_; --lines, owned_ += 64) {
      own(bytes_[0].data() + owned_ % bytes_in_ring_);
    }
  }

  // ---- reading

  /// The next frame, or null.
  const slot* front() const {
    const slot& next = in().all[slots_read_ % slots];
    return next.number.load(std::memory_order_acquire) ==
                   static_cast<std::uint32_t>(slots_read_ + 1)
               ? &next
               : nullptr;
  }
  /// Whether the front and what it adds are what the peer wrote, as far as checksums tell.
  bool holds(const slot& next) const {
    if (!has_checksums()) return true;
    const std::size_t piece = fetched(next.piece);
    std::uint32_t sum = 0;
    std::memcpy(&sum, next.data + checksum_at, sizeof sum);
    return piece <= bytes_in_ring_ - readable_ &&
           sum == sum_of(next, slots_read_ + 1, piece, data() + readable_);
  }
  /// Whether the front's number is one that the peer can have written: this one, or that of its
  /// last turn. Only checksums make a difference.
  bool is_numbered() const {
    if (!has_checksums()) return true;
    const std::uint64_t before = slots_read_ < slots ? 0 : slots_read_ + 1 - slots;
    const auto number = in().all[slots_read_ % slots].number.load(std::memory_order_relaxed);
    return number == static_cast<std::uint32_t>(before) ||
           number == static_cast<std::uint32_t>(slots_read_ + 1);
  }
  /// The front's slot, which adds so many bytes, may be written again. False: that cannot be.
  bool pop(std::size_t piece) {
    if (piece > bytes_in_ring_ - readable_) return false;
    readable_ += piece;
    ++slots_read_;
    return true;
  }
  /// Payload that has come and was not taken.
  std::size_t readable() const { return readable_; }
  const std::byte* data() const { return bytes_[1].data() + bytes_read_ % bytes_in_ring_; }
  void take(std::size_t size) {
    // What was read may be written.
    detail::leave_lines(bytes_[1].data() + bytes_read_ % bytes_in_ring_, size);
    readable_ -= size;
    bytes_read_ += size;
    if (bytes_read_ - bytes_told_ >= bytes_in_ring_ / 4 || slots_read_ - slots_told_ >= slots / 4) {
      tell();
    }
  }
  void settle() {
    if (slots_read_ - slots_told_ >= slots / 4) tell();
  }

  // ---- sleeping

  /// Asks to be woken; false: there is something to read already.
  bool sleep() {
    in().sleeper.asleep.store(1, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return front() == nullptr;
  }
  void wake() { in().sleeper.asleep.store(0, std::memory_order_relaxed); }
  /// Whether the other side sleeps and knows nothing of what was done here since the last time.
  bool must_wake() {
    if (!std::exchange(told_, false)) return false;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    std::atomic<std::uint32_t>& asleep = out().sleeper.asleep;
    return asleep.load(std::memory_order_relaxed) != 0 &&
           asleep.exchange(0, std::memory_order_relaxed) != 0;
  }

 private:
  bool has_checksums() const { return inline_ != longest_inline; }
  // Of a slot but for the checksum itself, and of the bytes that it adds.
  static std::uint32_t sum_of(const slot& which, std::uint64_t number, std::size_t size,
                              const std::byte* added) {
    constexpr std::size_t checked = offsetof(slot, data) + checksum_at - offsetof(slot, piece);
    const std::uint32_t sum =
        detail::crc32c(static_cast<std::uint32_t>(number), &which.piece, checked);
    return detail::crc32c(sum, added, size);
  }

  template <class Visit>
  void each_mapping(Visit visit) const {
    for (const mapping& each : lines_) visit(each.data(), direction_bytes);
    for (const mapping& each : bytes_) visit(each.data(), 2 * bytes_in_ring_);
  }

  direction& out() const { return *reinterpret_cast<direction*>(lines_[0].data()); }
  direction& in() const { return *reinterpret_cast<direction*>(lines_[1].data()); }

  // The next payload is taken to be as long as the last one; of a longer one the first lines do.
  static constexpr std::size_t longest_owned = 16 * 1024;
  static void own(const std::byte* line) {
#if defined(__x86_64__)
    // Compilers have it where a processor is named; where it is not known it does nothing.
    __asm__ volatile("prefetchw %0" : : "m"(*line));
#else
    __builtin_prefetch(line, 1);
#endif
  }

  void tell() {
    reader_line& line = in().reader;
    slots_told_ = slots_read_;
    bytes_told_ = bytes_read_;
    line.slots_done.store(slots_told_, std::memory_order_release);
    line.bytes_done.store(bytes_told_, std::memory_order_release);
    told_ = true;
  }

  mapping lines_[2];  // what this side writes, what it reads
  mapping bytes_[2];
  std::size_t bytes_in_ring_ = 0;
  std::size_t inline_;
  std::uint64_t slots_written_;
  std::uint64_t slots_done_;
  std::uint64_t bytes_written_ = 0;
  std::uint64_t bytes_done_ = 0;
  std::uint64_t owned_ = 0;  // lines up to here are in this core's cache, or on their way
  std::uint64_t own_to_ = 0;
  std::uint64_t slots_read_;
  std::uint64_t slots_told_;
  std::uint64_t bytes_read_ = 0;
  std::uint64_t bytes_told_ = 0;
  std::size_t readable_ = 0;
  bool told_ = false;
};

}  // namespace colls::shm
