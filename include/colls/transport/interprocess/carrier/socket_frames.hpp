// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket_frames: the frames of a link through a socket: its outbox to the system, and what comes to
// the landing.

#include <colls/driver/socket.hpp>
#include <colls/transport/interprocess/payload_target.hpp>
#include <colls/transport/interprocess/send_queue.hpp>

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>

namespace colls::tcp {

/// Reads and writes as much as the system takes at a time; a frame may be cut anywhere.
class socket_frames {
 public:
  struct progress {
    bool moved = false;
    bool is_full = false;  // the system takes more later
  };

  /// Each header is followed by its checksums from now on.
  void add_checksums() { head_ = sizeof(checked_header); }
  /// The bytes of a header, with its checksums.
  std::size_t head() const { return head_; }

  /// Writes what it can. An error is judged by the reader, who may find a last word of the peer.
  static progress write(int socket, outbox& from) {
    progress made;
    while (!from.empty()) {
      iovec parts[16];
      const int count = from.gather(parts);
      std::size_t wanted = 0;
      for (int i = 0; i < count; ++i) wanted += parts[i].iov_len;
      const ssize_t sent = send(socket, parts, count, wanted);
      if (sent <= 0) {
        made.is_full = detail::would_block();
        return made;
      }
      made.moved = true;
      from.advance(static_cast<std::size_t>(sent));
      if (static_cast<std::size_t>(sent) < wanted) {
        made.is_full = true;
        return made;
      }
    }
    return made;
  }

  /// The longest payload that `take_whole` may find.
  static constexpr std::size_t longest_whole = 4096;

  /// Writes one frame before which nothing waits. How many bytes of it went, at least 0.
  std::size_t write_whole(int socket, const header& frame, const_bytes message) const {
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.seal(message.data, message.size);
    iovec parts[2] = {{&checked, head_}, {const_cast<std::byte*>(message.data), message.size}};
    const ssize_t sent = send(socket, parts, 2, head_ + message.size);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }

  /// Payload first into its place, what follows it into the read-ahead buffer, in one call, which
  /// this gives the result of.
  ssize_t read(int socket, landing& into) {
    iovec parts[2];
    int count = 0;
    std::byte sink[4096];
    std::byte* const room = into.room();
    const std::size_t left = into.left();
    const std::size_t direct = room == nullptr ? std::min(left, sizeof sink) : left;
    wanted_ = direct;
    if (left > 0) parts[count++] = {room == nullptr ? sink : room, direct};
    if (direct == left) {
      parts[count++] = {ahead_ + size_, sizeof ahead_ - size_};
      wanted_ += sizeof ahead_ - size_;
    }
    const ssize_t got = receive(socket, parts, count);
    if (got <= 0) return got;
    const auto size = static_cast<std::size_t>(got);
    const std::size_t body = std::min(size, left);
    wanted_ -= size;
    size_ += size - body;
    into.filled(room == nullptr ? sink : room, body);
    return got;
  }
  /// Whether the last call filled all that it was given.
  bool may_have_more() const { return wanted_ == 0; }

  /// Takes frames out of the read-ahead buffer; payload that lies there is copied to its place.
  /// `is_taken()` may take the next one by `take_whole`; else `begin(frame, payload)` is told of
  /// it, false ends it. Null, or what is wrong with a frame.
  template <class IsTaken, class Begin>
  const char* take(landing& into, IsTaken is_taken, Begin begin) {
    bool goes_on = true;
    while (goes_on) {
      if (into.is_damaged()) return damaged;
      if (into.left() > 0) {
        const std::size_t part = std::min(into.left(), size_ - at_);
        if (part == 0) break;
        into.take(ahead_ + at_, part);
        at_ += part;
        continue;
      }
      if (size_ - at_ < head_) break;
      if (is_taken()) continue;
      checked_header frame;
      std::memcpy(&frame, ahead_ + at_, head_);
      if (has_checksums() && !frame.holds()) return damaged;
      if (!plausible(frame)) return senseless;
      const std::size_t body = control_size(frame);
      if (size_ - at_ < head_ + body) break;
      const std::byte* const payload = ahead_ + at_ + head_;
      at_ += head_ + body;
      if (has_checksums() && body != 0 && !is_sum_of(frame, payload, body)) return damaged;
      goes_on = begin(frame, payload);
      if (has_checksums()) into.expect(frame.payload_sum);
    }
    size_ -= at_;
    if (at_ > 0 && size_ > 0) std::memmove(ahead_, ahead_ + at_, size_);
    at_ = 0;
    return nullptr;
  }
  /// Takes that message if it is the next one and has come whole.
  bool take_whole(const header& wanted, std::byte* into) {
    const auto size = static_cast<std::size_t>(wanted.length);
    if (size_ - at_ < head_ + size) return false;
    if (std::memcmp(ahead_ + at_, &wanted, sizeof wanted) != 0) return false;
    const std::byte* const payload = ahead_ + at_ + head_;
    if (has_checksums()) {
      checked_header frame;
      std::memcpy(&frame, ahead_ + at_, sizeof frame);
      if (!frame.holds() || !is_sum_of(frame, payload, size)) return false;
    }
    if (size != 0) std::memcpy(into, payload, size);
    at_ += head_ + size;
    return true;
  }

 private:
  bool has_checksums() const { return head_ != sizeof(header); }
  static bool is_sum_of(const checked_header& frame, const std::byte* payload, std::size_t size) {
    return detail::crc32c(0, payload, size) == frame.payload_sum;
  }
  // The kernel takes 0.3 us longer to look at a list of pieces than to copy it takes here.
  static ssize_t send(int socket, iovec* parts, int count, std::size_t size) {
    std::byte whole[sizeof(checked_header) + longest_whole];
    if (size > sizeof whole) {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<std::size_t>(count);
      return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    std::size_t at = 0;
    for (int i = 0; i < count; ++i) {
      if (parts[i].iov_len != 0) std::memcpy(whole + at, parts[i].iov_base, parts[i].iov_len);
      at += parts[i].iov_len;
    }
    return ::send(socket, whole, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  static ssize_t receive(int socket, iovec* parts, int count) {
    if (count > 1) return ::readv(socket, parts, count);
    return ::recv(socket, parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  }

  std::size_t wanted_ = 0;  // by the last call, and not got
  std::size_t at_ = 0;      // in the read-ahead buffer, of what is not taken
  std::size_t size_ = 0;
  std::size_t head_ = sizeof(header);
  std::byte ahead_[sizeof(checked_header) + longest_whole];
};

}  // namespace colls::tcp
