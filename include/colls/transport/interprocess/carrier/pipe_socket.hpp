// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pipe_socket: the socket of a pipe, which an engine (the event loop) watches.

#include <colls/driver/engine.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <utility>

namespace colls::interprocess {

/// The connected socket of a pipe. It can be closed in both directions, or only in the direction in
/// which this rank writes.
class pipe_socket {
 public:
  pipe_socket(engine& driver, engine::watcher& handler) : engine_(driver), handler_(handler) {}
  pipe_socket(const pipe_socket&) = delete;
  pipe_socket& operator=(const pipe_socket&) = delete;
  ~pipe_socket() { close(false); }

  void adopt(detail::descriptor socket) { socket_ = std::move(socket); }
  int get() const { return socket_.get(); }
  bool is_open() const { return is_watched_; }

  /// Starts to watch the socket for arriving bytes. Throws if the engine cannot watch it.
  void start() {
    engine_.watch(socket_.get(), events_, handler_);
    is_watched_ = true;
  }
  /// Sets the events (EPOLL* bits) for which the engine watches the socket.
  void watch_for(std::uint32_t events) {
    if (!is_watched_ || events == events_) return;
    events_ = events;
    engine_.rewatch(socket_.get(), events_, handler_);
  }
  /// Stops watching and closes the socket. If `observes_peer` is true, closes only the direction in
  /// which this rank writes. The socket then shows when the peer exits. It also may hold bytes that
  /// this rank has not read: closing it would reset the connection, and the peer would lose what
  /// this rank has written.
  void close(bool observes_peer) {
    if (std::exchange(is_watched_, false)) engine_.unwatch(socket_.get(), handler_);
    if (socket_ && observes_peer) {
      shut_writing();
      half_closed_ = detail::fork_guarded_socket(std::move(socket_));
    }
    socket_ = {};
  }
  void shut_writing() { (void)::shutdown(socket_.get(), SHUT_WR); }  // fails if the peer is gone

  bool has_peer_exited() const {
    const int socket = socket_ ? socket_.get() : half_closed_.get();
    pollfd state{socket, 0, 0};
    return socket >= 0 && ::poll(&state, 1, 0) == 1 && (state.revents & POLLHUP) != 0;
  }

 private:
  engine& engine_;
  engine::watcher& handler_;
  detail::descriptor socket_;
  detail::fork_guarded_socket half_closed_;
  std::uint32_t events_ = EPOLLIN;
  bool is_watched_ = false;
};

}  // namespace colls::interprocess
