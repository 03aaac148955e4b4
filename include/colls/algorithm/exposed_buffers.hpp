// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// exposed_buffers: the memory in which peers access the input and output of one operation: the
// buffers themselves, or a copy of them in shared memory.

#include <colls/channel/channel.hpp>

#include <optional>

namespace colls::direct {

/// The memory in which peers access a rank's input and output. Peers directly access an input or
/// output that lies in shared memory. Otherwise they access a bounce buffer, which is a piece of
/// shared memory. The rank copies its input to the bounce buffer and its output from the bounce
/// buffer. If no bounce buffer is free or the input is longer than `max_bytes`, `in` and `out`
/// return the rank's own buffers. An object of this class must outlive the window that exposes the
/// memory.
template <channel Channel>
class exposed_buffers {
  using memory_type = typename Channel::transport_type::bounce_buffer;

 public:
  static constexpr std::size_t max_bytes = memory_type::size;

  exposed_buffers(const Channel& net, const_bytes in, mutable_bytes out)
      : exposed_buffers(in, out) {
    const auto is_shared = [&](const_bytes data) {
      return data.size == 0 || net.net().can_expose(data);
    };
    const bool is_in_shared = is_shared(in);
    const bool is_out_shared = is_shared(out);
    if ((is_in_shared && is_out_shared) || in.size > max_bytes) return;
    bounce_.emplace(net.net());
    if (bounce_->data() == nullptr) return;
    bounces_in_ = !is_in_shared;
    bounces_out_ = !is_out_shared;
  }
  /// Makes an object that may use a bounce buffer only if there are more than two ranks. Between
  /// two ranks, a bounce buffer saves no time, because each rank would have to wait while its peer
  /// copies the peer's input to the bounce buffer.
  static exposed_buffers for_three_or_more(const Channel& net, const_bytes in,
                                           mutable_bytes out = {}) {
    if (net.size() > 2) return {net, in, out};
    return {in, out};
  }

  /// Returns the memory in which peers read the input. The overload with the parameter `part`
  /// returns the memory in which peers read this part of the input.
  const_bytes in() const { return bounces_in_ ? const_bytes(bounce_->data(), in_.size) : in_; }
  const_bytes in(const_bytes part) const {
    return bounces_in_ ? bounced(part.data - in_.data, part.size) : part;
  }
  mutable_bytes out() const {
    return bounces_out_ ? mutable_bytes(bounce_->data(), out_.size) : out_;
  }
  /// Returns the memory in the bounce buffer that holds the copy of the input. Returns an empty
  /// range if peers read the input itself. If a rank passes the returned range to `shared_window`
  /// as `out`, its peers may overwrite the copy by calling `touch_input`.
  mutable_bytes writable_in() const { return writable_in(in_); }
  mutable_bytes writable_in(const_bytes part) const {
    return bounces_in_ ? bounced(part.data - in_.data, part.size) : mutable_bytes();
  }
  bool bounces_out() const { return bounces_out_; }

  /// Copies the chunks that peers read to the bounce buffer. These are the chunks `parts[peer]` of
  /// the input, for each peer to which `window` exposes the input. Does nothing if peers read the
  /// input itself.
  template <class Window, class Chunks>
  void copy_in(const Channel& net, const Window& window, const Chunks& parts) const {
    for (int peer = 0; bounces_in_ && peer < net.size(); ++peer) {
      if (!window.exposes_in(peer)) continue;
      const const_bytes part = bytes(parts[peer]);
      net.copy(bounced(part.data - in_.data, part.size), part);
      net.record().bytes += part.size;
    }
  }
  /// Copies the chunks that peers have written from the bounce buffer. These are the chunks
  /// `parts[peer]` of the output, for each peer to which `window` exposes the output. Does nothing
  /// if peers write to the output itself.
  template <class Window, class Chunks>
  void copy_out(const Channel& net, const Window& window, const Chunks& parts) const {
    for (int peer = 0; bounces_out_ && peer < net.size(); ++peer) {
      if (!window.exposes_out(peer)) continue;
      const mutable_bytes part = bytes(parts[peer]);
      net.copy(part, bounced(part.data - out_.data, part.size));
      net.record().bytes += part.size;
    }
  }

 private:
  exposed_buffers(const_bytes in, mutable_bytes out) : in_(in), out_(out) {}

  mutable_bytes bounced(std::ptrdiff_t offset, std::size_t length) const {
    return {bounce_->data() + offset, length};
  }

  std::optional<memory_type> bounce_;
  const_bytes in_;
  mutable_bytes out_;
  bool bounces_in_ = false;
  bool bounces_out_ = false;
};

}  // namespace colls::direct
