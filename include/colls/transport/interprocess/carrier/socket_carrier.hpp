// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket_carrier: the carrier whose pipes go through TCP sockets.

#include <colls/bootstrap/store_frame.hpp>
#include <colls/transport/interprocess/carrier/listening_carrier.hpp>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

namespace colls::interprocess {

/// The carrier of TCP sockets. It reaches every peer. Another carrier may derive from this class,
/// to open other pipes to peers that it reaches by TCP.
class socket_carrier : public listening_carrier {
 public:
  socket_carrier(engine& driver, world_info& info)
      : listening_carrier(driver, info, info.peer_listener) {}

  inline task<bool> dial(dial_attempt& attempt) override;
  /// Connects to the peer's listener, shuts down the write side of the new connection, and waits
  /// until keep-alive fails or the peer closes the connection. While the peer is busy, the
  /// connection stays in the backlog of the peer's listener, and the kernel of its host answers the
  /// keep-alive packets. Once the peer has accepted the connection, it reads the end of the stream
  /// and closes the connection.
  inline task<bool> answers(int peer) override;
  inline task<bool> is_refused(int peer, time_point deadline) override;
  inline std::pair<std::unique_ptr<pipe>, std::unique_ptr<pipe>> open_to_self() override;

 protected:
  // Opens a pipe to a peer that has accepted this rank, or that this rank has accepted.
  inline virtual task<> open_pipe(std::unique_ptr<stream> socket, int peer);
  // Sets the options of the TCP socket of a pipe.
  void set_options(int socket);

 private:
  inline task<> open_accepted(std::unique_ptr<stream> socket, int peer) override;

  bool logged_fallback_ = false;
  bool logged_congestion_ = false;
};

inline task<bool> socket_carrier::dial(dial_attempt& attempt) {
  const endpoint address = co_await look_up(attempt);
  auto socket = std::make_unique<stream>(engine_);
  socket->set_deadline(attempt.limit.after(engine_.now()));
  const detail::outcome connected = co_await detail::attempt(socket->connect(address));
  if (connected.ec) {
    attempt.error = connected.ec;
    attempt.is_short_of_resources = is_local_shortage(connected.ec);
    // If a peer on this host were dead, the kernel would refuse the connection. After any other
    // error, such a peer therefore counts as alive. For example, connections from other processes
    // may have filled the backlog of the peer's listener.
    attempt.is_peer_alive = is_on_this_host(attempt.peer) || attempt.is_short_of_resources;
    co_return true;
  }
  attempt.is_peer_alive = true;
  socket->set_deadline(handshake_deadline());
  detail::enable_keep_alive(socket->descriptor());
  owner_->set_half_open(attempt.peer, true);
  const bool accepted = co_await world_.authenticate(*socket, attempt.peer);
  if (!accepted || !owner_->is_wanted(attempt.peer)) co_return true;
  // Logged only now, because the entry would be wrong if TCP failed as well.
  if (attempt.error_of_last_carrier && !std::exchange(logged_fallback_, true)) {
    log_warn("rank %d reaches rank %d by tcp, not by shared memory: %s", world_.rank, attempt.peer,
             attempt.error_of_last_carrier.message().c_str());
  }
  co_await open_pipe(std::move(socket), attempt.peer);
  co_return true;
}

inline task<bool> socket_carrier::answers(int peer) {
  const endpoint address = co_await world_.address_of(peer);
  stream socket(engine_);
  socket.set_deadline(engine_.now() + dead_peer_timeout);
  const detail::outcome connected = co_await detail::attempt(socket.connect(address));
  if (!connected) co_return is_local_shortage(connected.ec);
  detail::enable_keep_alive(socket.descriptor());
  (void)::shutdown(socket.descriptor(), SHUT_WR);  // an error shows at the next read
  socket.set_deadline(never);
  const detail::outcome left = co_await detail::attempt(socket.readable());
  const std::error_code ec = left.ec;
  // The errors that a socket reports if keep-alive fails.
  co_return ec != std::errc::timed_out&& ec != std::errc::host_unreachable&& ec !=
      std::errc::network_unreachable&& ec != std::errc::network_down;
}

inline task<bool> socket_carrier::is_refused(int peer, time_point deadline) {
  const endpoint address = co_await world_.address_of(peer);
  stream socket(engine_);
  socket.set_deadline(deadline);
  const detail::outcome connected = co_await detail::attempt(socket.connect(address));
  co_return connected.ec == std::errc::connection_refused;
}

inline std::pair<std::unique_ptr<pipe>, std::unique_ptr<pipe>> socket_carrier::open_to_self() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    throw error(errc::too_many_files, std::strerror(errno));
  }
  detail::descriptor first(ends[0]);
  detail::descriptor second(ends[1]);
  const bool checks = world_.cfg.checksum;
  return {std::make_unique<socket_pipe>(engine_, std::move(first), checks),
          std::make_unique<socket_pipe>(engine_, std::move(second), checks)};
}

inline task<> socket_carrier::open_accepted(std::unique_ptr<stream> socket, int peer) {
  if (owner_->is_superseded(peer)) co_return;
  owner_->set_address(peer, detail::text_of(socket->remote()));
  co_await open_pipe(std::move(socket), peer);
}

inline task<> socket_carrier::open_pipe(std::unique_ptr<stream> socket, int peer) {
  detail::descriptor released = socket->release();
  if (released) set_options(released.get());
  open(peer, std::move(released));
  co_return;
}

inline void socket_carrier::set_options(int socket) {
  detail::enable_keep_alive(socket);
  // The congestion control algorithm in `config::congestion` was available when this rank joined
  // the world. Selecting it fails if this process has since lost the right to use it, or if the
  // kernel module that implements it has since been unloaded.
  const auto& name = world_.cfg.congestion;
  std::error_code ec;
  if (!name.empty()) ec = detail::set_congestion(socket, name);
  if (ec && !std::exchange(logged_congestion_, true)) {
    log_warn("rank %d has connections without the congestion control '%s': %s", world_.rank,
             name.c_str(), ec.message().c_str());
  }
}

}  // namespace colls::interprocess
