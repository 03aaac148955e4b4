// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of socket_carrier.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/transport/interprocess/carrier/socket_carrier.hpp>

#include <new>

namespace colls::interprocess {

COLLS_ONCE task<bool> socket_carrier::dial(dial_attempt& attempt) {
  const endpoint address = co_await look_up(attempt);
  stream socket(engine_);
  socket.set_deadline(engine_.now() + dead_peer_timeout);
  const detail::outcome connected = co_await detail::attempt(socket.connect(address));
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
  socket.set_deadline(handshake_deadline());
  detail::enable_keep_alive(socket.descriptor());
  owner_->set_half_open(attempt.peer, true);
  const bool accepted = co_await world_.authenticate(socket, attempt.peer);
  if (!accepted || !owner_->is_wanted(attempt.peer)) co_return true;
  // Logged only now, because the entry would be wrong if TCP failed as well.
  if (attempt.error_of_last_carrier && !std::exchange(logged_fallback_, true)) {
    log_warn("rank %d reaches rank %d by tcp, not by shared memory: %s", world_.rank, attempt.peer,
             attempt.error_of_last_carrier.message().c_str());
  }
  open_tcp(attempt.peer, socket.release());
  co_return true;
}

COLLS_ONCE task<bool> socket_carrier::answers(int peer) {
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

COLLS_ONCE std::pair<std::unique_ptr<pipe>, std::unique_ptr<pipe>> socket_carrier::open_to_self() {
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

COLLS_ONCE task<> socket_carrier::open_accepted(std::unique_ptr<stream> socket, int peer) {
  if (owner_->is_superseded(peer)) co_return;
  owner_->set_address(peer, detail::text_of(socket->remote()));
  open_tcp(peer, socket->release());
}

COLLS_ONCE void socket_carrier::open_tcp(int peer, detail::descriptor socket) {
  if (!socket) return open(peer, std::move(socket));
  detail::enable_keep_alive(socket.get());
  // The congestion control algorithm in `config::congestion` was available when this rank joined
  // the world. Selecting it fails if this process has since lost the right to use it, or if the
  // kernel module that implements it has since been unloaded.
  const auto& name = world_.cfg.congestion;
  std::error_code ec;
  if (!name.empty()) ec = detail::set_congestion(socket.get(), name);
  if (ec && !std::exchange(logged_congestion_, true)) {
    log_warn("rank %d has connections without the congestion control '%s': %s", world_.rank,
             name.c_str(), ec.message().c_str());
  }
  open(peer, std::move(socket));
}

}  // namespace colls::interprocess
