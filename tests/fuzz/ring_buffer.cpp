// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Slots of a ring buffer: a peer that writes any bytes into the memory that both have mapped, and
// another peer by a socket.
//
// covers: transport/interprocess/carrier/shared_memory_frames.hpp
// covers: transport/interprocess/carrier/ring_buffer.hpp: map room has_slot write front pop readable data take publish_if_due request_wake cancel_wake take_wake_request publish
// covers: transport/interprocess/carrier/shared_memory_pipe.hpp: poll try_receive
// covers: transport/interprocess/connection.hpp: try_receive begin

#include "rank.hpp"

#include <sys/mman.h>

namespace {

using namespace colls;

constexpr std::size_t bytes_in_ring = shm::min_ring_buffer_bytes;

/// The shared memory of a connection as the dialling peer made it, written without the rules of a
/// ring buffer.
class hostile_memory {
 public:
  hostile_memory() {
    fuzz::require(!memory_.make(shm::connection_bytes(bytes_in_ring)), "memory to share");
    base_ = static_cast<std::byte*>(::mmap(nullptr, memory_.size(), PROT_READ | PROT_WRITE,
                                           MAP_SHARED, memory_.descriptor(), 0));
    fuzz::require(base_ != MAP_FAILED, "memory that is mapped");
  }

  int descriptor() const { return memory_.descriptor(); }
  /// The direction in which this side writes, and the one in which it reads.
  shm::direction& out() { return *reinterpret_cast<shm::direction*>(base_); }
  shm::direction& in() { return *reinterpret_cast<shm::direction*>(base_ + memory_.size() / 2); }
  std::byte* bytes() { return base_ + shm::direction_bytes; }

  /// Resets the memory to its state before the first run.
  void clear(bool checks) {
    checks_ = checks;
    std::memset(base_, 0, shm::direction_bytes);
    std::memset(base_ + memory_.size() / 2, 0, shm::direction_bytes);
    slots_ = bytes_ = 0;
  }

  /// Writes a slot as a rank would write it, with the changes of this run.
  void write(fuzz::input& from, const interprocess::header& head, std::string_view payload) {
    const int how = from.byte();
    shm::slot& next = out().all[slots_++ % shm::slots];
    const std::size_t room = checks_ ? shm::checksum_offset : shm::max_inline_bytes;
    const bool is_short = payload.size() <= room && head.length == payload.size();
    next.piece = is_short ? 0 : static_cast<std::uint32_t>(payload.size());
    std::memcpy(static_cast<void*>(&next.frame), &head, sizeof head);
    if (is_short) {
      std::memcpy(next.data, payload.data(), payload.size());
    } else {
      for (const char each : payload)
        bytes()[bytes_++ % bytes_in_ring] = static_cast<std::byte>(each);
    }
    if (how & 1) next.piece = from.number<std::uint32_t>();
    if (how & 2) next.piece = from.byte();
    if (how & 64) next.piece = static_cast<std::uint32_t>(head.length);
    const auto number = static_cast<std::uint32_t>(slots_);
    if (checks_ && (how & 128) == 0)
      set_checksums(next, number, is_short ? std::string_view() : payload);
    next.number.store(how & 4 ? number + from.byte() : number, std::memory_order_release);
    if (how & 8) in().reader.slots_done.store(from.number<std::uint64_t>());
    if (how & 16) in().reader.bytes_done.store(from.number<std::uint64_t>());
    if (how & 32) in().sleeper.asleep.store(from.byte());
  }
  void write_whole(fuzz::input& from, const fuzz::fuzzed_frame& frame) {
    std::string_view rest = frame.payload;
    const auto part = [&] {
      const std::string_view piece = rest.substr(0, shm::max_piece_bytes);
      rest.remove_prefix(piece.size());
      return piece;
    };
    write(from, frame.head, part());
    while (!rest.empty()) write(from, {}, part());
  }
  /// Marks all slots as read, as a reader that keeps up.
  void read_all() { in().reader.slots_done.store(seen_slots()); }

 private:
  static void set_checksums(shm::slot& which, std::uint32_t number, std::string_view added) {
    constexpr std::size_t checked =
        offsetof(shm::slot, data) + shm::checksum_offset - offsetof(shm::slot, piece);
    std::uint32_t sum = detail::crc32c(number, &which.piece, checked);
    sum = detail::crc32c(sum, added.data(), added.size());
    std::memcpy(which.data + shm::checksum_offset, &sum, sizeof sum);
  }
  std::uint64_t seen_slots() {
    std::uint64_t last = 0;
    for (const shm::slot& each : in().all) {
      last = std::max<std::uint64_t>(last, each.number.load(std::memory_order_acquire));
    }
    return last;
  }

  shm::segment memory_;
  std::byte* base_ = nullptr;
  bool checks_ = false;
  std::uint64_t slots_ = 0;
  std::uint64_t bytes_ = 0;
};

hostile_memory& shared() {
  static hostile_memory all;
  return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::input from(data, size);
  fuzz::attacked_rank rank(from.below(2) == 1);
  shared().clear(rank.checks());
  std::vector<fuzz::peer> peers;
  peers.push_back(rank.link_from(1, shared().descriptor()));
  peers.push_back(rank.link_from(2));
  int steps = 0;
  while (!from.is_over() && ++steps < 64) {
    const int what = from.byte();
    fuzz::peer& one = peers[static_cast<std::size_t>(what & 1)];
    if (what < 0x50) {
      rank.call(from);
    } else if (what < 0xc0) {
      const fuzz::fuzzed_frame frame = fuzz::make_frame(from, rank);
      if ((what & 1) == 0) {
        shared().write_whole(from, frame);
      } else {
        one.send(fuzz::text_of(frame, rank));
      }
    } else if (what < 0xc8) {
      // A further piece of the previous message, or of no message.
      shared().write(from, {}, std::string(from.number<std::uint16_t>(), 'm'));
    } else if (what < 0xd0) {
      one.send(from.text());
    } else if (what < 0xf0) {
      fuzz::settle();
    } else if (what < 0xfa) {
      shared().read_all();
    } else if (what < 0xfd) {
      one.stop_writing();
    } else {
      one.close();
    }
    if (what & 2) fuzz::settle();
    for (fuzz::peer& each : peers) {
      if (each.is_open()) each.receive();
    }
  }
  fuzz::settle();
  return 0;
}
