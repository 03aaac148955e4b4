// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket_pipe: a pipe through a TCP or local socket.

#include <colls/transport/interprocess/carrier/pipe_socket.hpp>
#include <colls/transport/interprocess/carrier/stream_pipe.hpp>

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

namespace colls::interprocess {

/// A pipe through a connected stream socket.
class socket_pipe final : public stream_pipe<socket_pipe>, engine::watcher {
 public:
  /// `checks` enables checksums of frames.
  socket_pipe(engine& driver, detail::descriptor socket, bool checks = false)
      : stream_pipe(checks), socket_(driver, *this) {
    socket_.adopt(std::move(socket));
  }

  void close(bool observes_peer) override { socket_.close(observes_peer); }
  void shut_writing() override { socket_.shut_writing(); }
  void report_arrivals(bool enabled) override {
    reports_arrivals_ = enabled;
    update_events();
  }
  bool is_silent(time_point now) override {
    // TCP keep-alive cannot replace this check, because it sends no probes while data is in flight.
    constexpr time_point limit = 5 * seconds;
    int unsent = 0;
    tcp_info info{};
    socklen_t size = sizeof info;
    const bool waits = is_open() && ::ioctl(socket_.get(), SIOCOUTQ, &unsent) == 0 && unsent > 0 &&
                       ::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    // The time of the last ACK does not suffice to detect a silent peer. A peer that receives
    // nothing may still retransmit its own data. The kernel counts these segments as ACKs, although
    // they acknowledge no new data of this rank. This function therefore also checks
    // retransmissions.
    const bool unanswered = waits && info.tcpi_unacked > 0 && info.tcpi_retransmits > 0;
    if (!unanswered) {
      unanswered_since_ = never;
    } else if (unanswered_since_ == never) {
      unanswered_since_ = now;
    }
    return (waits && info.tcpi_last_ack_recv > limit / milliseconds) ||
           (unanswered && now - unanswered_since_ >= limit);
  }
  bool has_peer_exited() const override { return socket_.has_peer_exited(); }

 private:
  friend stream_pipe<socket_pipe>;

  void start() override {
    stream_pipe::start();
    socket_.start();
  }
  void ready(std::uint32_t events) override {
    if ((events & static_cast<std::uint32_t>(EPOLLOUT)) != 0) flush();
    poll();
    flush();
  }

  bool is_open() const { return socket_.is_open(); }
  void wait_writable(bool wanted) {
    reports_room_ = wanted;
    update_events();
  }
  void update_events() {
    socket_.watch_for((reports_arrivals_ ? static_cast<std::uint32_t>(EPOLLIN) : 0U) |
                      (reports_room_ ? static_cast<std::uint32_t>(EPOLLOUT) : 0U));
  }

  // If the bytes are few, copies them into one buffer first, because this is faster than passing
  // the kernel a list of parts.
  ssize_t write_bytes(iovec* parts, int count, std::size_t size) {
    std::byte frame_copy[sizeof(checked_header) + stream_frames::max_try_receive];
    if (size > sizeof frame_copy) {
      msghdr message{};
      message.msg_iov = parts;
      message.msg_iovlen = static_cast<std::size_t>(count);
      return ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    std::size_t offset = 0;
    for (int i = 0; i < count; ++i) {
      if (parts[i].iov_len != 0)
        std::memcpy(frame_copy + offset, parts[i].iov_base, parts[i].iov_len);
      offset += parts[i].iov_len;
    }
    return ::send(socket_.get(), frame_copy, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  ssize_t read_bytes(iovec* parts, int count) {
    if (count > 1) return ::readv(socket_.get(), parts, count);
    return ::recv(socket_.get(), parts[0].iov_base, parts[0].iov_len, MSG_DONTWAIT);
  }

  pipe_socket socket_;
  bool reports_arrivals_ = true;
  bool reports_room_ = false;
  time_point unanswered_since_ = never;  // when the peer stopped acknowledging retransmitted data
};

}  // namespace colls::interprocess
