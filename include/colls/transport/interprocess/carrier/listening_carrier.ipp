// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of listening_carrier.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/carrier/listening_carrier.hpp>

#include <new>

namespace colls::interprocess {

COLLS_ONCE void listening_carrier::start(owner& user) {
  owner_ = &user;
  if (!socket_.is_open()) return;
  listener_.emplace(engine_, socket_, world_.make_hello(connection_purpose::peer), world_.key,
                    static_cast<authenticating_listener::handler&>(*this));
}

COLLS_ONCE void listening_carrier::stop_listening() {
  listener_.reset();
  socket_.close();
}

COLLS_ONCE void listening_carrier::open(int peer, detail::descriptor socket) {
  std::unique_ptr<pipe> made;
  try {
    const bool checks = world_.cfg.checksum;
    if (socket) made = std::make_unique<socket_pipe>(engine_, std::move(socket), checks);
  } catch (const std::bad_alloc&) {
    return owner_->abort(peer);
  }
  owner_->opened(peer, std::move(made));
}

COLLS_ONCE task<endpoint> listening_carrier::look_up(dial_attempt& attempt) {
  const endpoint address = co_await world_.address_of(attempt.peer);
  attempt.has_address = true;
  owner_->set_address(attempt.peer, detail::text_of(address));
  co_return address;
}

COLLS_ONCE bool listening_carrier::is_local_shortage(std::error_code ec) {
  return ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system ||
         ec == std::errc::no_buffer_space || ec == std::errc::not_enough_memory ||
         ec == std::errc::address_not_available;
}

COLLS_ONCE void listening_carrier::handle_peer(std::unique_ptr<stream> socket,
                                               const hello& greeting) {
  accepting_.start(accept(std::move(socket), greeting.rank, greeting.purpose));
}

COLLS_ONCE task<> listening_carrier::accept(std::unique_ptr<stream> socket, int peer,
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
