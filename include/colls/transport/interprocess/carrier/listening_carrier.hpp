// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// listening_carrier: the part of a carrier that accepts peers at a listening socket.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/carrier/carrier.hpp>
#include <colls/transport/interprocess/carrier/socket_pipe.hpp>

#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace colls::interprocess {

/// A carrier whose pipes begin with a handshake over a socket.
class listening_carrier : public carrier, authenticating_listener::handler {
 public:
  listening_carrier(engine& driver, world_info& info, listener& socket)
      : engine_(driver), world_(info), socket_(socket), accepting_(driver) {}

  inline void start(owner& user) override;
  inline void stop_listening() override;

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
  inline void handle_peer(std::unique_ptr<stream> socket, const hello& greeting) override;
  task<> accept(std::unique_ptr<stream> socket, int peer, connection_purpose purpose);

  std::optional<authenticating_listener> listener_;
  task_group accepting_;  // the last member, because its tasks use all the others
};

inline void listening_carrier::start(owner& user) {
  owner_ = &user;
  if (!socket_.is_open()) return;
  listener_.emplace(engine_, socket_, world_.make_hello(connection_purpose::peer), world_.key,
                    static_cast<authenticating_listener::handler&>(*this));
}

inline void listening_carrier::stop_listening() {
  listener_.reset();
  socket_.close();
}

inline void listening_carrier::open(int peer, detail::descriptor socket) {
  std::unique_ptr<pipe> made;
  try {
    const bool checks = world_.cfg.checksum;
    if (socket) made = std::make_unique<socket_pipe>(engine_, std::move(socket), checks);
  } catch (const std::bad_alloc&) {
    return owner_->abort(peer);
  }
  owner_->opened(peer, std::move(made));
}

inline task<endpoint> listening_carrier::look_up(dial_attempt& attempt) {
  const endpoint address = co_await world_.address_of(attempt.peer);
  attempt.has_address = true;
  owner_->set_address(attempt.peer, detail::text_of(address));
  co_return address;
}

inline bool listening_carrier::is_local_shortage(std::error_code ec) {
  return ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system ||
         ec == std::errc::no_buffer_space || ec == std::errc::not_enough_memory ||
         ec == std::errc::address_not_available;
}

inline void listening_carrier::handle_peer(std::unique_ptr<stream> socket, const hello& greeting) {
  accepting_.start(accept(std::move(socket), greeting.rank, greeting.purpose));
}

inline task<> listening_carrier::accept(std::unique_ptr<stream> socket, int peer,
                                        connection_purpose purpose) {
  bool is_accepted = false;
  try {
    const bool known = purpose == connection_purpose::peer && peer >= 0 && peer < world_.size &&
                       peer != world_.rank;
    const verdict answer = known ? owner_->judge(peer) : verdict::unavailable;
    is_accepted = answer == verdict::accepted;
    co_await give_verdict(*socket, answer);
    if (!is_accepted) co_return;
    co_await open_accepted(std::move(socket), peer);
  } catch (const error& thrown) {
    log_debug("rank %d went away while it was accepted: %s", peer, thrown.record().detail);
  } catch (const std::bad_alloc&) {
    log_debug("there was no memory to accept rank %d", peer);
  }
  if (is_accepted) owner_->accept_ended(peer);
}

}  // namespace colls::interprocess
