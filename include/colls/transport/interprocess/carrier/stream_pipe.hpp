// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// stream_pipe: a pipe through any stream of bytes.

#include <colls/transport/interprocess/carrier/pipe.hpp>
#include <colls/transport/interprocess/carrier/stream_frames.hpp>

#include <cerrno>

namespace colls::interprocess {

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
