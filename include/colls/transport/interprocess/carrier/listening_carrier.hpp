// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// listening_carrier: the part of a carrier that accepts peers at a listening socket.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/carrier/carrier.hpp>
#include <colls/transport/interprocess/carrier/socket_pipe.hpp>

#include <memory>
#include <optional>

namespace colls::interprocess {

/// A carrier whose pipes begin with a handshake over a socket.
class listening_carrier : public carrier, authenticating_listener::handler {
 public:
  listening_carrier(engine& driver, world_info& info, listener& socket)
      : engine_(driver), world_(info), socket_(socket), accepting_(driver) {}

  void start(owner& user) override;
  void stop_listening() override;

 protected:
  // Opens the pipe to a peer that this rank has accepted.
  virtual task<> open_accepted(std::unique_ptr<stream> socket, int peer) = 0;

  // Opens a pipe through `socket`, which is empty if the peer has closed its end already.
  void open(int peer, detail::descriptor socket);

  // Returns the address at which the peer listens.
  task<endpoint> look_up(dial_attempt& attempt);

  // Returns whether `ec` means that this process or this host lacks a resource. Such an error does
  // not show whether the peer is alive.
  static bool is_local_shortage(std::error_code ec);
  bool is_on_this_host(int peer) const {
    return world_.node_of[static_cast<std::size_t>(peer)] == world_.node;
  }
  time_point handshake_deadline() const { return world_.cfg.timeout.after(engine_.now()); }

  engine& engine_;
  world_info& world_;
  listener& socket_;
  owner* owner_ = nullptr;

 private:
  void handle_peer(std::unique_ptr<stream> socket, const hello& greeting) override;
  task<> accept(std::unique_ptr<stream> socket, int peer, connection_purpose purpose);

  std::optional<authenticating_listener> listener_;
  task_group accepting_;  // the last member, because its tasks use all the others
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/carrier/listening_carrier.ipp>
#endif
