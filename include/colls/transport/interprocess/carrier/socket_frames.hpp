// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket_frames: moves the frames of a connection through a socket, from its send queue to the
// system, and from the system to the payload target (the destination of a payload).

#include <colls/driver/socket.hpp>
#include <colls/transport/interprocess/payload_target.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace colls::interprocess {

/// The frames of a connection on a socket. Each system call moves as many bytes as the system
/// takes, so a frame may be split anywhere.
class socket_frames {
 public:
  struct progress {
    bool moved = false;
    bool is_full = false;  // the system accepts no more bytes now
  };

  /// Enables checksums.
  void add_checksums() { header_bytes_ = sizeof(checked_header); }
  /// Returns the length of a header, including its checksums.
  std::size_t header_bytes() const { return header_bytes_; }

  /// Writes as many queued bytes as the system takes. Ignores errors, because the next read reports
  /// them, after it has found any last frame of the peer.
  static progress write(int socket, send_queue& queue) {
    progress result;
    while (!queue.empty()) {
      iovec parts[16];
      const int count = queue.gather(parts);
      std::size_t wanted = 0;
      for (int i = 0; i < count; ++i) wanted += parts[i].iov_len;
      const ssize_t sent = send(socket, parts, count, wanted);
      if (sent <= 0) {
        result.is_full = detail::would_block();
        return result;
      }
      result.moved = true;
      queue.advance(static_cast<std::size_t>(sent));
      if (static_cast<std::size_t>(sent) < wanted) {
        result.is_full = true;
        return result;
      }
    }
    return result;
  }

  /// The length of the longest payload that `try_receive` can find.
  static constexpr std::size_t max_try_receive = 4096;

  /// Writes one frame. The send queue must be empty. Returns how many bytes of the frame were
  /// written.
  std::size_t try_send(int socket, const header& frame, const_bytes message) const {
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.set_checksums(message.data, message.size);
    iovec parts[2] = {{&checked, header_bytes_},
                      {const_cast<std::byte*>(message.data), message.size}};
    const ssize_t sent = send(socket, parts, 2, header_bytes_ + message.size);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }

  /// Reads the payload to its destination, and the bytes that follow into the read-ahead buffer, by
  /// one system call. Returns the result of the system call.
  ssize_t read(int socket, payload_target& target) {
    iovec parts[2];
    int count = 0;
    std::byte sink[4096];
    std::byte* const room = target.room();
    const std::size_t left = target.left();
    const std::size_t direct = room == nullptr ? std::min(left, sizeof sink) : left;
    unfilled_ = direct;
    if (left > 0) parts[count++] = {room == nullptr ? sink : room, direct};
    if (direct == left) {
      parts[count++] = {read_ahead_ + size_, sizeof read_ahead_ - size_};
      unfilled_ += sizeof read_ahead_ - size_;
    }
    const ssize_t got = receive(socket, parts, count);
    if (got <= 0) return got;
    const auto size = static_cast<std::size_t>(got);
    const std::size_t body = std::min(size, left);
    unfilled_ -= size;
    size_ += size - body;
    target.filled(room == nullptr ? sink : room, body);
    return got;
  }
  /// Returns whether the last read filled all the space that it was given.
  bool may_have_more() const { return unfilled_ == 0; }

  /// Takes the frames out of the read-ahead buffer. Copies payload in that buffer to its
  /// destination. For each frame, first calls `is_taken()`, which may take the frame by
  /// `try_receive` and then returns true. Otherwise calls `begin(frame, payload)`, and stops if it
  /// returns false. Returns null, or a text that says what is wrong with a frame.
  template <class IsTaken, class Begin>
  const char* take(payload_target& target, IsTaken is_taken, Begin begin) {
    bool is_running = true;
    while (is_running) {
      if (target.is_damaged()) return bad_checksum;
      if (target.left() > 0) {
        const std::size_t part = std::min(target.left(), size_ - begin_);
        if (part == 0) break;
        target.take(read_ahead_ + begin_, part);
        begin_ += part;
        continue;
      }
      if (size_ - begin_ < header_bytes_) break;
      if (is_taken()) continue;
      checked_header frame;
      std::memcpy(&frame, read_ahead_ + begin_, header_bytes_);
      if (has_checksums() && !frame.is_intact()) return bad_checksum;
      if (!is_plausible(frame)) return malformed;
      const std::size_t body = control_size(frame);
      if (size_ - begin_ < header_bytes_ + body) break;
      const std::byte* const payload = read_ahead_ + begin_ + header_bytes_;
      begin_ += header_bytes_ + body;
      if (has_checksums() && body != 0 && !is_sum_of(frame, payload, body)) return bad_checksum;
      is_running = begin(frame, payload);
      if (has_checksums()) target.expect(frame.payload_sum);
    }
    size_ -= begin_;
    if (begin_ > 0 && size_ > 0) std::memmove(read_ahead_, read_ahead_ + begin_, size_);
    begin_ = 0;
    return nullptr;
  }
  /// Receives the message with the header `expected` into `out` if it is the next frame and has
  /// arrived completely. Returns whether it has received the message.
  bool try_receive(const header& expected, std::byte* out) {
    const auto size = static_cast<std::size_t>(expected.length);
    if (size_ - begin_ < header_bytes_ + size) return false;
    if (std::memcmp(read_ahead_ + begin_, &expected, sizeof expected) != 0) return false;
    const std::byte* const payload = read_ahead_ + begin_ + header_bytes_;
    if (has_checksums()) {
      checked_header frame;
      std::memcpy(&frame, read_ahead_ + begin_, sizeof frame);
      if (!frame.is_intact() || !is_sum_of(frame, payload, size)) return false;
    }
    if (size != 0) std::memcpy(out, payload, size);
    begin_ += header_bytes_ + size;
    return true;
  }

 private:
  bool has_checksums() const { return header_bytes_ != sizeof(header); }
  static bool is_sum_of(const checked_header& frame, const std::byte* payload, std::size_t size) {
    return detail::crc32c(0, payload, size) == frame.payload_sum;
  }
  // Short frames are copied, because that is faster than passing the kernel a list of pieces.
  static ssize_t send(int socket, iovec* parts, int count, std::size_t size) {
    std::byte frame_copy[sizeof(checked_header) + max_try_receive];
    if (size > sizeof frame_copy) {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<std::size_t>(count);
      return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    std::size_t offset = 0;
    for (int i = 0; i < count; ++i) {
      if (parts[i].iov_len != 0)
        std::memcpy(frame_copy + offset, parts[i].iov_base, parts[i].iov_len);
      offset += parts[i].iov_len;
    }
    return ::send(socket, frame_copy, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  static ssize_t receive(int socket, iovec* parts, int count) {
    if (count > 1) return ::readv(socket, parts, count);
    return ::recv(socket, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  }

  std::size_t unfilled_ = 0;  // the space that the last read left unfilled
  std::size_t begin_ = 0;     // where the bytes that are not taken begin in the read-ahead buffer
  std::size_t size_ = 0;
  std::size_t header_bytes_ = sizeof(header);
  std::byte read_ahead_[sizeof(checked_header) + max_try_receive];
};

}  // namespace colls::interprocess
