// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket_carrier: the carrier whose pipes go through TCP sockets.

#include <colls/transport/interprocess/carrier/listening_carrier.hpp>

namespace colls::interprocess {

/// The carrier of TCP sockets. It reaches every peer.
class socket_carrier final : public listening_carrier {
 public:
  socket_carrier(engine& driver, world_info& info)
      : listening_carrier(driver, info, info.peer_listener) {}

  task<bool> dial(dial_attempt& attempt) override;
  /// Connects to the peer's listener, shuts down the write side of the new connection, and waits
  /// until keep-alive fails or the peer closes the connection. While the peer is busy, the
  /// connection stays in the backlog of the peer's listener, and the kernel of its host answers the
  /// keep-alive packets. Once the peer has accepted the connection, it reads the end of the stream
  /// and closes the connection.
  task<bool> answers(int peer) override;
  std::pair<std::unique_ptr<pipe>, std::unique_ptr<pipe>> open_to_self() override;

 private:
  task<> open_accepted(std::unique_ptr<stream> socket, int peer) override;
  // Opens a pipe through a TCP socket.
  void open_tcp(int peer, detail::descriptor socket);

  bool logged_fallback_ = false;
  bool logged_congestion_ = false;
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/carrier/socket_carrier.ipp>
#endif
