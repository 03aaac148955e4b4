// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stream_pipe: a pipe through any stream of bytes, such as a socket. stream_frames: the frames of
// such a pipe.

#include <colls/os/system_call.hpp>
#include <colls/transport/interprocess/carrier/pipe.hpp>

#include <sys/types.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace colls::interprocess {

/// A class that reads and writes the frames of one connection through a stream of bytes. A read or
/// write may transfer only a part of a frame. This class can therefore continue in the middle of a
/// frame.
///
/// The caller passes the functions that move bytes. `write_bytes(parts, count, size)` writes bytes
/// of the `count` elements of `parts`, whose total length is `size`, and `read_bytes(parts, count)`
/// reads into them. Both return the number of bytes moved, or -1 and set errno, as the system calls
/// do.
class stream_frames {
 public:
  struct progress {
    bool moved = false;
    bool is_full = false;  // the stream accepts no more bytes for now
  };

  /// Enables checksums of frames.
  void add_checksums() { header_bytes_ = sizeof(checked_header); }
  /// Returns the length of a header. If checksums are enabled, this length includes them.
  std::size_t header_bytes() const { return header_bytes_; }

  /// Writes as many queued bytes as the stream accepts. Does not report an error, because the
  /// connection should first read the last frames of the peer. After these frames, `read` reports
  /// the error.
  template <class WriteBytes>
  static progress write(const WriteBytes& write_bytes, send_queue& queue) {
    progress result;
    while (!queue.empty()) {
      iovec parts[16];
      const int count = queue.gather(parts);
      std::size_t wanted = 0;
      for (int i = 0; i < count; ++i) wanted += parts[i].iov_len;
      const ssize_t sent = write_bytes(parts, count, wanted);
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

  /// The length of the longest payload that `try_receive` can receive.
  static constexpr std::size_t max_try_receive = 4096;

  /// Writes as much of one frame as the stream accepts. The send queue must be empty. Returns the
  /// number of bytes written.
  template <class WriteBytes>
  std::size_t try_send(const WriteBytes& write_bytes, const header& frame,
                       const_bytes message) const {
    checked_header checked;
    checked = frame;
    if (has_checksums()) checked.set_checksums(message.data, message.size);
    iovec parts[2] = {{&checked, header_bytes_},
                      {const_cast<std::byte*>(message.data), message.size}};
    const ssize_t sent = write_bytes(parts, 2, header_bytes_ + message.size);
    return sent > 0 ? static_cast<std::size_t>(sent) : 0;
  }

  /// Reads from the stream by one call of `read_bytes`. The missing bytes of an incomplete payload
  /// go to `target`. All bytes that follow go to the read-ahead buffer. Returns the result of the
  /// call.
  template <class ReadBytes>
  ssize_t read(const ReadBytes& read_bytes, payload_target& target) {
    iovec parts[2];
    int count = 0;
    std::byte sink[4096];
    std::byte* const room = target.room();
    const std::size_t left = target.left();
    const std::size_t direct = room == nullptr ? std::min(left, sizeof sink) : target.room_size();
    unfilled_ = direct;
    if (left > 0) parts[count++] = {room == nullptr ? sink : room, direct};
    if (direct == left) {
      parts[count++] = {read_ahead_ + size_, sizeof read_ahead_ - size_};
      unfilled_ += sizeof read_ahead_ - size_;
    }
    const ssize_t got = read_bytes(parts, count);
    if (got <= 0) return got;
    const auto size = static_cast<std::size_t>(got);
    const std::size_t body = std::min(size, left);
    unfilled_ -= size;
    size_ += size - body;
    target.filled(room == nullptr ? sink : room, body);
    return got;
  }
  /// Returns whether the last call of `read` filled all the buffers that it passed to `read_bytes`.
  /// If so, more bytes may be waiting in the stream.
  bool may_have_more() const { return unfilled_ == 0; }

  /// Processes the bytes in the read-ahead buffer. Passes payload bytes to `target`. At the start
  /// of each frame, calls `is_taken()`, which may receive the whole frame by `try_receive` and must
  /// then return true. If `is_taken` returns false, calls `begin(frame, payload)`. If `begin`
  /// returns false, processes no more bytes. Returns null, or a text that says what is wrong with a
  /// frame.
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
  /// If the next frame has the header `expected` and has arrived completely, copies its payload to
  /// `out`, removes the frame and returns true. Otherwise returns false.
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

  std::size_t unfilled_ = 0;  // the space that the last read left unfilled
  std::size_t begin_ = 0;     // the offset in the read-ahead buffer of the first byte not taken yet
  std::size_t size_ = 0;
  std::size_t header_bytes_ = sizeof(header);
  std::byte read_ahead_[sizeof(checked_header) + max_try_receive];
};

/// The base class of pipes through a stream of bytes. A derived class `Stream` has these functions:
/// - `write_bytes` and `read_bytes` move bytes (see `stream_frames`).
/// - `is_open()` returns whether the pipe has not been closed.
/// - `wait_writable(wanted)` sets whether `flush` must be called when the stream, which has been
///   full, accepts bytes again.
template <class Stream>
class stream_pipe : public pipe {
 public:
  explicit stream_pipe(bool has_checksums)
      : pipe({.max_try_receive = stream_frames::max_try_receive}), has_checksums_(has_checksums) {}

  bool flush() override {
    if (!self().is_open()) return false;
    const auto [moved, is_full] = stream_frames::write(writer(), queue());
    self().wait_writable(is_full);
    return moved;
  }
  bool try_send(const header& frame, const_bytes message) override {
    const std::size_t sent = frames_.try_send(writer(), frame, message);
    if (sent == 0) return false;
    if (sent < frames_.header_bytes() + message.size) {
      if (!queue().append_rest(frame, message, sent)) handler().abort();
      self().wait_writable(true);
    }
    return true;
  }
  bool try_receive(const header& expected, std::byte* out) override {
    return frames_.try_receive(expected, out);
  }
  bool poll() override {
    const auto is_taken = [this] { return handler().take_next(); };
    const auto begin = [this](const header& frame, const std::byte* payload) {
      return self().is_open() && handler().begin(frame, payload);
    };
    const auto read_bytes = [this](iovec* parts, int count) {
      return self().read_bytes(parts, count);
    };
    bool moved = false;
    for (int rounds = 0; self().is_open() && rounds < 64; ++rounds) {
      const ssize_t got = frames_.read(read_bytes, target());
      if (got < 0 && detail::would_block()) break;
      if (got <= 0) {
        handler().ended(got < 0 ? errno : 0);
        return true;
      }
      moved = true;
      if (const char* const fault = frames_.take(target(), is_taken, begin)) {
        handler().refuse(fault);
        return true;
      }
      if (!frames_.may_have_more()) break;
    }
    return moved;
  }

 protected:
  void start() override {
    if (!has_checksums_) return;
    queue().add_checksums();
    frames_.add_checksums();
  }

 private:
  Stream& self() { return static_cast<Stream&>(*this); }
  auto writer() {
    return [this](iovec* parts, int count, std::size_t size) {
      return self().write_bytes(parts, count, size);
    };
  }

  stream_frames frames_;
  bool has_checksums_;
};

}  // namespace colls::interprocess
