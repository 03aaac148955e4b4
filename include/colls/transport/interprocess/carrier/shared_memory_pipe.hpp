// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_memory_pipe: a pipe through ring buffers in shared memory. It has a local socket, but only
// to wake the peer, to pass descriptors, and to see when the peer closes its end.

#include <colls/driver/local_socket.hpp>
#include <colls/os/procfs.hpp>
#include <colls/transport/interprocess/carrier/pipe.hpp>
#include <colls/transport/interprocess/carrier/pipe_socket.hpp>
#include <colls/transport/interprocess/carrier/shared_memory_frames.hpp>

#include <cstdint>
#include <cstring>

namespace colls::interprocess {

/// A pipe through shared memory. No function except those that wake the peer, pass a descriptor, or
/// read the socket makes a system call.
class shared_memory_pipe final : public pipe, engine::watcher {
 public:
  /// Constructs a pipe that has no memory and no socket yet. `checks` enables checksums of slots.
  shared_memory_pipe(engine& driver, bool checks = false)
      : pipe({.is_polled = true,
              .reads_in_place = true,
              .shares_memory = true,
              .max_try_receive = SIZE_MAX}),
        ring_(checks),
        socket_(driver, *this) {}

  /// Maps the ring buffers. See `shm::ring_buffer::map`.
  std::error_code map(const shm::segment& memory, int side) { return ring_.map(memory, side); }
  void adopt(detail::descriptor socket) { socket_.adopt(std::move(socket)); }

  void close(bool observes_peer) override { socket_.close(observes_peer); }
  void shut_writing() override { socket_.shut_writing(); }

  bool flush() override { return write_frames(ring_, queue()); }
  [[gnu::always_inline]] bool try_send(const header& frame, const_bytes message) override {
    if (!ring_.has_slot()) return false;
    const bool is_long = message.size > ring_.inline_bytes();
    if (is_long && ring_.room(message.size) < message.size) return false;
    ring_.write(frame, message.data, message.size);
    return true;
  }
  [[gnu::always_inline]] bool try_receive(const header& expected, std::byte* out) override {
    const shm::slot* const next = ring_.front();
    if (next == nullptr) {
      ring_.prefetch_for_write();
      return false;
    }
    if (std::memcmp(&next->frame, &expected, sizeof expected) != 0) return false;
    if (!ring_.is_intact(*next)) return false;
    const std::size_t size = expected.length;
    const std::size_t piece = shm::load_once(next->piece);
    if (size <= ring_.inline_bytes()) {
      if (piece != 0) return false;
      if (size != 0) std::memcpy(out, next->data, size);
      if (!ring_.pop(0)) return false;
    } else {
      if (piece != size || !ring_.pop(size)) return false;
      std::memcpy(out, ring_.data(), size);
      ring_.take(size);
    }
    ring_.publish_if_due();
    return true;
  }
  bool poll() override {
    const auto begin = [this](const header& frame, const std::byte* payload) {
      return handler().begin(frame, payload);
    };
    bool moved = false;
    for (int rounds = 0; socket_.is_open() && rounds < 256; ++rounds) {
      const shm::slot* const next = ring_.front();
      if (next == nullptr) {
        if (!ring_.has_valid_number()) {
          handler().refuse(bad_checksum);
          return true;
        }
        ring_.prefetch_for_write();
        break;
      }
      moved = true;
      if (handler().take_next()) continue;
      if (const char* const fault = take_slot(ring_, *next, target(), begin)) {
        handler().refuse(fault);
        return true;
      }
      ring_.publish_if_due();
    }
    if (socket_.is_open() && !queue().empty()) moved |= flush();
    wake_peer();
    return moved;
  }

  bool arm() override {
    const bool nothing_arrived = ring_.request_wake();
    // Model step: request_room_check
    const bool nothing_written = queue().empty() || !flush();
    wake_peer();  // Model step: request_wakes_peer
    return nothing_arrived && nothing_written;
  }
  void disarm() override { ring_.cancel_wake(); }
  /// Wakes the peer if it sleeps and this rank has used the ring buffer since the previous call of
  /// this function, that is, written a frame or released space. The check needs a memory fence,
  /// which is slow. This rank therefore calls this function only once after several reads and
  /// writes.
  void wake_peer() override {
    if (socket_.is_open() && ring_.take_wake_request()) {
      // An error does not matter here. Either the peer has closed the connection, or the socket is
      // full. If the socket is full, the bytes that it already holds wake the peer.
      (void)::send(socket_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }

  bool has_peer_exited() const override { return socket_.has_peer_exited(); }
  bool is_peer_stopped() const override {
    return detail::is_stopped(peer_process()).value_or(false);
  }
  std::error_code pass_descriptor(int fd) override {
    if (shm::send_descriptor(socket_.get(), fd)) return {};
    return {errno, std::system_category()};
  }
  pid_t peer_process() const override { return shm::peer_process(socket_.get()); }

 private:
  void start() override { socket_.start(); }
  // Reads from the socket, on which the peer sends wake-ups and the descriptor of its shared heap.
  // Then reads frames from the ring buffer. If the peer has closed its end of the socket, reads all
  // frames that remain in the ring buffer before it reports the end.
  void ready(std::uint32_t) override {
    // The number of reads is limited, so that a peer that writes without pause cannot keep this
    // thread in the loop. If bytes remain in the socket, epoll reports them again.
    constexpr int max_reads = 16;
    // Once the peer no longer writes, `max_polls` calls of `poll` empty the ring buffer. The ring
    // buffer has `shm::slots` slots, and one call reads up to 256 of them.
    constexpr int max_polls = static_cast<int>(shm::slots) / 256;
    char bytes[256];
    ssize_t got = 1;
    int system_error = 0;
    for (int reads = 0; got > 0 && reads < max_reads; ++reads) {
      detail::descriptor passed;
      got = detail::receive_bytes_with_descriptor(socket_.get(), bytes, sizeof bytes, passed);
      system_error = got < 0 ? errno : 0;
      // The peer sends the byte '+' together with the descriptor of its shared heap. If this
      // process has reached its limit on open files, the byte arrives without the descriptor.
      const bool is_announced =
          got > 0 && std::memchr(bytes, '+', static_cast<std::size_t>(got)) != nullptr;
      if (passed || is_announced) handler().heap_received(std::move(passed));
    }
    errno = system_error;
    const bool over = got == 0 || (got < 0 && !detail::would_block());
    for (int polls = over ? max_polls : 1; polls > 0 && socket_.is_open() && poll();) --polls;
    if (socket_.is_open() && over) handler().ended(system_error);
  }

  shm::ring_buffer ring_;
  pipe_socket socket_;
};

}  // namespace colls::interprocess
