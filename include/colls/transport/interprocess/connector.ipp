// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of connector that are not inline. They dial peers and accept connections.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/driver/local_socket.hpp>
#include <colls/transport/interprocess/connector.hpp>

#include <cerrno>
#include <new>

namespace colls::interprocess {

COLLS_ONCE connector::connector(engine& driver, world_info& info, connection_table& connections,
                                owner& transport)
    : engine_(driver), world_(info), connections_(connections), owner_(transport), tasks_(driver) {
  const hello greeting = world_.make_hello(connection_purpose::peer);
  const auto start = [&](std::optional<authenticating_listener>& result, listener& source) {
    if (!source.is_open()) return;
    result.emplace(engine_, source, greeting, world_.key,
                   static_cast<authenticating_listener::handler&>(*this));
  };
  start(listener_, world_.peer_listener);
  start(local_listener_, world_.local_listener);
}

COLLS_ONCE connection& connector::connect(int peer) {
  connection& conn = connections_.get(peer);
  if (!conn.is_open() && !conn.is_dialing && !conn.is_accepted && !conn.has_ended() && !stopped_) {
    if (peer == world_.rank) {
      open_to_self(conn);
    } else {
      conn.is_dialing = true;
      try {
        tasks_.start(dial(conn));
      } catch (const std::bad_alloc&) {
        conn.is_dialing = false;
        throw;
      }
    }
  }
  return conn;
}

COLLS_ONCE void connector::probe(connection& conn) {
  if (conn.is_probing || engine_.now() < conn.next_probe) return;
  try {
    tasks_.start(probe_host(conn));
  } catch (const std::bad_alloc&) {
    conn.next_probe = engine_.now() + probe_interval;
  }
}

COLLS_ONCE void connector::close_listeners() {
  listener_.reset();
  local_listener_.reset();
  world_.peer_listener.close();
  world_.local_listener.close();
}

COLLS_ONCE void connector::open_to_self(connection& out) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    throw error(errc::too_many_files, std::strerror(errno));
  }
  connections_.open_to_self(out, detail::descriptor(ends[0]), detail::descriptor(ends[1]));
}

COLLS_ONCE task<> connector::dial(connection& conn) {
  const flag_guard dialing(conn.is_dialing);
  // The yield lets the caller of `connect` queue the operation that needs the connection. A peer on
  // this host can refuse the connection at once. If this task reported the failure before the
  // operation was queued, the operation would not learn of the failure.
  co_await yield();
  failure reason(errc::peer_failed);
  reason.culprit = conn.peer();
  time_point pause = 10 * milliseconds;
  time_point last_alive = engine_.now();
  bool hopeless = false;
  bool wanted = true;
  while (wanted && !conn.is_open() && !conn.has_ended() && !closing_ && !hopeless) {
    bool alive = false;
    bool has_address = false;
    bool dropped = false;
    try {
      const flag_guard opening(conn.is_half_open);
      const endpoint address = co_await world_.address_of(conn.peer());
      has_address = true;
      conn.set_address(detail::text_of(address));
      std::snprintf(reason.address, sizeof reason.address, "%s", conn.address().c_str());
      std::error_code local_error;
      const bool is_dialed = co_await dial_local(conn, address, &alive, &local_error);
      if (!is_dialed) {
        stream socket(engine_);
        socket.set_deadline(engine_.now() + dead_peer_timeout);
        const detail::outcome connected = co_await detail::attempt(socket.connect(address));
        if (connected.ec) {
          reason.set_detail("it cannot be reached: %s", connected.ec.message().c_str());
          hopeless = connected.ec == std::errc::connection_refused;
          // If a peer on this host were dead, the kernel would refuse the connection. After any
          // other error, such a peer therefore counts as alive. For example, connections from other
          // processes may have filled the backlog of the peer's listener.
          alive = is_on_this_host(conn.peer()) || is_local_shortage(connected.ec);
          if (is_local_shortage(connected.ec)) {
            log_shortage(conn.peer(), connected.ec.message().c_str());
          }
        } else {
          alive = true;
          socket.set_deadline(handshake_deadline());
          detail::enable_keep_alive(socket.descriptor());
          conn.is_half_open = true;
          const bool accepted = co_await world_.authenticate(socket, conn.peer());
          if (accepted && !conn.is_open() && !conn.has_ended() && !closing_) {
            log_tcp_fallback(conn.peer(), local_error);
            adopt(conn, socket.release());
          }
        }
      }
    } catch (const error& thrown) {
      const failure& cause = thrown.record();
      if (!has_address && cause.code == errc::unreachable) {
        // The store cannot be reached, so this rank cannot learn the address of the peer's
        // listener. The peer itself may be alive.
        reason = cause;
        reason.culprit = -1;
        reason.address[0] = 0;
        reason.set_detail(
            "no connection to rank %d: only the store knows where it listens, and %.200s",
            conn.peer(), cause.detail);
        hopeless = true;
        break;
      }
      if (cause.code == errc::crypto_failed || cause.code == errc::insecure_bind) {
        // The error has occurred within this rank. It does not show whether the peer is alive.
        reason = cause;
        reason.culprit = world_.rank;
        hopeless = true;
        break;
      }
      reason.set_detail("%.300s", cause.detail);
      dropped = cause.code == errc::unreachable;
      if (cause.code == errc::timeout) {
        alive = true;
        wanted = owner_.is_needed(conn);
      }
      if (cause.code == errc::too_many_files) {
        alive = true;
        log_shortage(conn.peer(), cause.detail);
      }
      hopeless = cause.code == errc::auth_failed || cause.code == errc::protocol_error ||
                 cause.code == errc::peer_failed;
    } catch (const std::bad_alloc&) {
      alive = true;  // a lack of memory on this rank says nothing about the peer
    }
    if (conn.is_open() || hopeless || !wanted) break;
    if (alive) last_alive = engine_.now();
    hopeless = engine_.now() - last_alive >= dead_peer_timeout;
    co_await engine_.sleep_until(engine_.now() + pause);
    // The pause stays short if the peer has closed the connection during the handshake. While other
    // processes open very many connections to the peer, the peer may close several connections of
    // this rank before it serves one.
    pause = std::min<time_point>(2 * pause, dropped ? 50 * milliseconds : seconds);
  }
  const bool looks_dead = hopeless && reason.code == errc::peer_failed;
  if (looks_dead && !conn.is_open() && !closing_ && world_.kv_store != nullptr) {
    try {
      const std::vector<std::string> key{detail::left_key(conn.peer())};
      const std::string left = co_await world_.kv_store->check(key, engine_.now() + seconds);
      if (left == "1") reason = peer_left_failure(conn.peer());
    } catch (const error&) {
      // The store cannot be reached either, so it gives no better reason. `reason` remains the
      // error of the last attempt to connect to the peer.
    }
  }
  if (!hopeless || conn.is_open() || closing_) co_return;
  // If no operation needs the connection, this rank has dialled only to send control messages, and
  // no operation has to fail. The next operation that needs the connection dials again.
  if (reason.code != errc::closed && !owner_.is_needed(conn)) co_return;
  owner_.unreachable(conn, reason);
}

COLLS_ONCE task<> connector::probe_host(connection& conn) {
  conn.is_probing = true;
  const flag_guard probing(conn.is_probing);
  bool answers = true;
  try {
    const endpoint address = co_await world_.address_of(conn.peer());
    stream socket(engine_);
    socket.set_deadline(engine_.now() + dead_peer_timeout);
    const detail::outcome connected = co_await detail::attempt(socket.connect(address));
    answers = connected || is_local_shortage(connected.ec);
    if (connected) {
      detail::enable_keep_alive(socket.descriptor());
      (void)::shutdown(socket.descriptor(), SHUT_WR);  // an error shows at the next read
      socket.set_deadline(never);
      const detail::outcome left = co_await detail::attempt(socket.readable());
      answers = !is_network_error(left.ec);
    }
  } catch (const error&) {
    // This rank cannot learn the address of the peer's listener. The peer's host may still answer,
    // so `answers` remains true.
  } catch (const std::bad_alloc&) {
  }
  conn.next_probe = engine_.now() + probe_interval;
  if (!answers && conn.is_silent(engine_.now())) conn.fail(ETIMEDOUT);
}

COLLS_ONCE bool connector::is_network_error(std::error_code ec) {
  return ec == std::errc::timed_out || ec == std::errc::host_unreachable ||
         ec == std::errc::network_unreachable || ec == std::errc::network_down;
}

COLLS_ONCE bool connector::is_local_shortage(std::error_code ec) {
  return ec == std::errc::too_many_files_open || ec == std::errc::too_many_files_open_in_system ||
         ec == std::errc::no_buffer_space || ec == std::errc::not_enough_memory ||
         ec == std::errc::address_not_available;
}

COLLS_ONCE task<bool> connector::dial_local(connection& conn, endpoint address, bool* is_alive,
                                            std::error_code* reason) {
  const bool only = world_.cfg.transport == "shm";
  if (!world_.local_listener.is_open() || !is_on_this_host(conn.peer())) {
    if (only) {
      detail::raise(errc::peer_failed, "shm was asked for, and %s",
                    is_on_this_host(conn.peer())
                        ? "this rank has no local socket"
                        : "it runs on another host, or in another network namespace");
    }
    co_return false;
  }
  detail::descriptor fd;
  std::error_code ec = std::make_error_code(std::errc::connection_refused);
  // If the peer has refused three connections through its local socket, this rank no longer dials
  // that socket. The peer probably believes that this process belongs to another user.
  if (conn.local_refusals < 3) ec = shm::connect_local(address, fd);
  const bool is_congested = ec == std::errc::resource_unavailable_try_again;
  *is_alive = !ec || is_congested;
  if (!is_congested) {
    conn.congested_since = never;
  } else if (conn.congested_since == never) {
    conn.congested_since = engine_.now();
  }
  if (is_congested && (only || engine_.now() - conn.congested_since < max_congestion)) {
    co_return true;
  }
  if (is_local_shortage(ec)) detail::raise(errc::too_many_files, "%s", ec.message().c_str());
  if (!ec && !detail::is_own_user(fd.get())) {
    ec = std::make_error_code(std::errc::permission_denied);
  }
  if (ec) {
    if (only) {
      detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                    ec.message().c_str());
    }
    *reason = ec;
    co_return false;
  }
  // The handshake has the same timeout as an operation, because a busy peer answers late. If the
  // peer dies, the kernel closes the peer's end of the connection, and the handshake fails at once.
  stream socket(engine_, std::move(fd));
  socket.set_deadline(handshake_deadline());
  bool accepted = false;
  try {
    accepted = co_await world_.authenticate(socket, conn.peer());
  } catch (const error& thrown) {
    if (thrown.record().code == errc::unreachable) ++conn.local_refusals;
    throw;
  }
  if (!accepted || conn.is_open() || conn.has_ended() || closing_) co_return true;
  shm::segment memory;
  auto ring = std::make_unique<shm::ring_buffer>(world_.cfg.checksum);
  const std::size_t ring_bytes =
      shm::ring_buffer_bytes_for(world_.local_size, world_.is_oversubscribed());
  ec = memory.make(shm::connection_bytes(ring_bytes));
  if (!ec) ec = ring->map(memory, 0);
  if (!ec && !shm::send_descriptor(socket.descriptor(), memory.descriptor())) {
    if (errno == EPIPE || errno == ECONNRESET) co_return true;
    ec = {errno, std::system_category()};
  }
  if (ec && only) throw_no_shared_memory(ec);
  if (ec) {
    log_no_shared_memory(ec);
    if (!shm::send_descriptor(socket.descriptor(), -1)) co_return true;
  }
  // The peer sends its answer and opens its end of the connection. If this rank stopped waiting for
  // the answer, only the peer's end would be open. This rank therefore waits without a deadline.
  socket.set_deadline(never);
  auto shared = shm::answer::no;
  conn.is_half_open = true;
  const detail::outcome answered =
      co_await detail::attempt(socket.read({reinterpret_cast<std::byte*>(&shared), 1}));
  conn.is_half_open = false;
  if (!answered || conn.is_open() || conn.has_ended()) co_return true;
  if (shared != shm::answer::yes) {
    if (only) detail::raise(errc::peer_failed, "it cannot share memory with this rank");
    ring.reset();
  }
  open(conn, socket.release(), std::move(ring));
  co_return true;
}

COLLS_ONCE task<> connector::accept_local(std::unique_ptr<stream> socket, int peer) {
  socket->set_deadline(handshake_deadline());
  co_await socket->readable();
  shm::segment memory;
  std::unique_ptr<shm::ring_buffer> ring;
  detail::descriptor passed;
  std::error_code ec;
  if (!shm::receive_descriptor(socket->descriptor(), passed, ec)) co_return;
  if (passed) {
    ring = std::make_unique<shm::ring_buffer>(world_.cfg.checksum);
    ec = memory.adopt(std::move(passed));
    if (!ec) ec = ring->map(memory, 1);
  }
  if (ec) ring.reset();
  connection& conn = connections_.get(peer);
  if (conn.is_open() || conn.has_ended() || closing_) co_return;
  const auto shared = ring != nullptr ? shm::answer::yes : shm::answer::no;
  if (!shm::send_answer(socket->descriptor(), shared)) co_return;
  if (ec && world_.cfg.transport == "shm") throw_no_shared_memory(ec);
  if (ec) log_no_shared_memory(ec);
  conn.set_address("a process of this host");
  open(conn, socket->release(), std::move(ring));
}

COLLS_ONCE void connector::log_tcp_fallback(int peer, std::error_code reason) {
  if (!reason || std::exchange(logged_tcp_fallback_, true)) return;
  log_warn("rank %d reaches rank %d by tcp, not by shared memory: %s", world_.rank, peer,
           reason.message().c_str());
}

COLLS_ONCE void connector::throw_no_shared_memory(std::error_code ec) {
  detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                ec.message().c_str());
}

COLLS_ONCE void connector::log_no_shared_memory(std::error_code ec) {
  if (std::exchange(logged_no_shared_memory_, true)) return;
  log_warn("rank %d reaches others on this host by sockets, not by shared memory: %s", world_.rank,
           ec.message().c_str());
}

COLLS_ONCE void connector::log_shortage(int peer, const char* reason) {
  if (std::exchange(logged_shortage_, true)) return;
  log_warn("rank %d cannot open a connection to rank %d yet: %s", world_.rank, peer, reason);
}

COLLS_ONCE void connector::open(connection& conn, detail::descriptor socket,
                                std::unique_ptr<shm::ring_buffer> ring) {
  if (!socket) return conn.fail(ECONNRESET);  // the peer has already closed its end
  try {
    connections_.open(conn, std::move(socket), std::move(ring));
  } catch (const std::exception&) {
    return conn.abort();  // the peer, which has opened its end, sees this end close
  }
  owner_.opened(conn);
}

COLLS_ONCE void connector::adopt(connection& conn, detail::descriptor socket) {
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
  open(conn, std::move(socket));
}

COLLS_ONCE void connector::handle_peer(std::unique_ptr<stream> socket, const hello& greeting) {
  tasks_.start(accept(std::move(socket), greeting.rank, greeting.purpose));
}

COLLS_ONCE task<> connector::accept(std::unique_ptr<stream> socket, int peer,
                                    connection_purpose purpose) {
  bool is_accepted = false;
  try {
    const bool local = shm::is_local(socket->descriptor());
    const bool known = purpose == connection_purpose::peer && peer >= 0 && peer < world_.size &&
                       peer != world_.rank;
    const verdict answer = !known || closing_    ? verdict::unavailable
                           : may_accept(peer)    ? verdict::accepted
                           : has_abandoned(peer) ? verdict::connection_failed
                                                 : verdict::duplicate;
    is_accepted = answer == verdict::accepted;
    if (is_accepted) connections_.get(peer).is_accepted = true;
    co_await give_verdict(*socket, answer);
    if (!is_accepted) co_return;
    connection& conn = connections_.get(peer);
    if (local) {
      co_await accept_local(std::move(socket), peer);
    } else if (!conn.is_open() && !conn.has_ended()) {
      conn.set_address(detail::text_of(socket->remote()));
      adopt(conn, socket->release());
    }
  } catch (const error& thrown) {
    log_debug("rank %d went away while it was accepted: %s", peer, thrown.record().detail);
  } catch (const std::bad_alloc&) {
    log_debug("there was no memory to accept rank %d", peer);
  }
  if (!is_accepted) co_return;
  connection& conn = connections_.get(peer);
  conn.is_accepted = false;
  if (!conn.is_open() && owner_.is_needed(conn)) connect(peer);
}

COLLS_ONCE bool connector::has_abandoned(int peer) {
  const connection* const known = connections_.find(peer);
  return known != nullptr && known->has_ended() && !known->received_goodbye();
}

COLLS_ONCE bool connector::may_accept(int peer) {
  const connection* const known = connections_.find(peer);
  return known == nullptr ||
         (!known->is_open() && !known->has_ended() && !(known->is_dialing && world_.rank < peer));
}

}  // namespace colls::interprocess
