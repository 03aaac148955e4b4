// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of authenticating_listener.hpp: accepting, authenticating and evicting
// connections.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <new>

namespace colls {

namespace detail {

inline constexpr time_point eviction_pause = milliseconds;
inline constexpr time_point max_burst = 64 * eviction_pause;

/// Logs that the listener at `address` has rejected a peer. All listeners of this process together
/// write at most one line per minute.
COLLS_ONCE void log_rejection(const endpoint& address, const char* reason) {
  static std::mutex guard;
  static rate_limited_log log{60};
  const std::lock_guard lock(guard);
  log.warn("turned away at %s: %s", text_of(address).c_str(), reason);
}

}  // namespace detail

COLLS_ONCE authenticating_listener::authenticating_listener(engine& driver, listener& socket,
                                                            const hello& local, const secret& key,
                                                            handler& receiver,
                                                            time_point proof_timeout)
    : engine_(driver),
      listener_(socket),
      local_(local),
      key_(key),
      handler_(receiver),
      proof_timeout_(proof_timeout),
      max_pending_(std::clamp(2 * local.world, 64, 1024)),
      last_sweep_(driver.now()),
      tasks_(driver) {
  engine_.watch(listener_.descriptor(), EPOLLIN, *this);
  try {
    engine_.add(static_cast<engine::source&>(*this), false);
  } catch (...) {
    engine_.unwatch(listener_.descriptor(), *this);
    throw;
  }
}

COLLS_ONCE authenticating_listener::~authenticating_listener() {
  engine_.remove(static_cast<engine::source&>(*this));
  engine_.unwatch(listener_.descriptor(), *this);
}

COLLS_ONCE std::string authenticating_listener::accept_error() const {
  return accept_error_ != 0 && engine_.now() - accept_error_time_ < 10 * seconds
             ? std::strerror(accept_error_)
             : std::string();
}

COLLS_ONCE void authenticating_listener::ready(std::uint32_t) {
  // If the number of pending connections is at its limit, one call of this function evicts at most
  // `max_pending_ / 8` connections. If this process lacks descriptors or memory, only `may_evict`
  // limits the evictions. A call evicts only connections that earlier calls have accepted. Without
  // these limits, a process that rarely gets CPU time could accept many connections in one call and
  // evict them before it reads from them.
  int old = pending_count();
  const int kept = old - max_pending_ / 8;
  // One call accepts a limited number of connections. The thread therefore has time for its other
  // work even if very many peers connect.
  for (int accepted = 0; accepted < 64; ++accepted) {
    const bool full = pending_count() >= max_pending_;
    if (full && old <= kept) return;
    if (full && !may_evict(old)) return pause(5 * milliseconds);
    detail::descriptor socket = listener_.accept();
    if (!socket) {
      if (!detail::is_resource_exhausted(errno)) return;
      const int error = errno;
      if (!may_evict(old)) return refuse(error);
      evict(old);
      continue;
    }
    // The ranks of other users connect by TCP, not by the local socket. A process of another user
    // that connects to the local socket is therefore not a rank. Its connection is closed when
    // `socket` goes out of scope.
    if (shm::is_local(socket.get()) && !detail::is_own_user(socket.get())) {
      ++rejected_;
      continue;
    }
    if (full) evict(old);
    try {
      pending_.push_back({std::make_unique<stream>(engine_, std::move(socket)), active_time_});
    } catch (const error&) {
      return refuse(ENOSPC);
    } catch (const std::bad_alloc&) {
      return refuse(ENOMEM);
    }
    try {
      tasks_.start(authenticate(std::prev(pending_.end())));
    } catch (const std::bad_alloc&) {
      pending_.pop_back();
      return refuse(ENOMEM);
    }
  }
}

COLLS_ONCE void authenticating_listener::refuse(int error) {
  accept_error_ = error;
  accept_error_time_ = engine_.now();
  const hello_bytes answer = write_hello(refusal(connection_purpose::no_descriptor, local_.rank));
  spare_.refuse(listener_, [&](int socket) {
    ++rejected_;
    hello_bytes unread;
    // If a process closes a connection that has unread input, the kernel resets the connection, and
    // the peer can lose the answer. Therefore the peer's HELLO is read first.
    (void)::recv(socket, unread.data(), unread.size(), MSG_DONTWAIT);
    // An error of `send` is ignored. Even without the answer, the peer notices that its connection
    // was closed.
    (void)::send(socket, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  });
  const std::string reason = std::string("no connection can be accepted: ") + std::strerror(error);
  detail::log_rejection(listener_.local(), reason.c_str());
  pause(100 * milliseconds);
}

COLLS_ONCE void authenticating_listener::pause(time_point span) {
  paused_until_ = engine_.now() + span;
  set_listening(false);
  try {
    tasks_.start(wake_at(paused_until_));
  } catch (const std::bad_alloc&) {
    // The failure to start the task is ignored, because the task would only wake the engine on
    // time. The engine also calls `sweep` periodically. The first of these calls after
    // `paused_until_` resumes listening.
  }
}

COLLS_ONCE task<> authenticating_listener::wake_at(time_point time) {
  co_await engine_.sleep_until(time);
}

COLLS_ONCE task<> authenticating_listener::authenticate(pending_iterator slot) {
  std::unique_ptr<stream> connection;
  hello peer;
  {
    const pending_slot guard(*this, slot);
    try {
      peer = co_await challenge(*slot->connection, local_, key_);
      connection = std::move(slot->connection);
    } catch (const error& thrown) {
      ++rejected_;
      // If the peer has closed the connection during the handshake, the cause is often harmless.
      // For example, the peer is a rank that has exited, or a rank that exceeded a time limit
      // because it was computing. Only every 64th of these cases is logged, so that they do not
      // fill the log.
      if (slot->evicted) {
        detail::log_rejection(listener_.local(), "too many connections: some are evicted");
      } else if (thrown.record().code != errc::closed || ++disconnects_ % 64 == 0) {
        detail::log_rejection(listener_.local(), thrown.record().detail);
      }
    } catch (const std::bad_alloc&) {
      ++rejected_;
    }
  }
  if (connection) handler_.handle_peer(std::move(connection), peer);
}

COLLS_ONCE bool authenticating_listener::may_evict(int old) {
  const time_point time = engine_.now();
  next_eviction_ = std::max(next_eviction_, time - detail::max_burst);
  return old > 0 && next_eviction_ <= time;
}

COLLS_ONCE void authenticating_listener::evict(int& old) {
  std::uint32_t draw = 0;
  detail::fill_random(&draw, sizeof draw);
  auto skip = draw % static_cast<std::uint32_t>(old);
  for (pending_connection& it : pending_) {
    if (it.evicted || skip-- > 0) continue;
    it.evicted = true;
    ++evicted_;
    --old;
    next_eviction_ += detail::eviction_pause;
    return it.connection->close();
  }
}

COLLS_ONCE void authenticating_listener::set_listening(bool wanted) {
  if (listening_ == wanted) return;
  listening_ = wanted;
  engine_.rewatch(listener_.descriptor(), wanted ? static_cast<std::uint32_t>(EPOLLIN) : 0U, *this);
}

COLLS_ONCE void authenticating_listener::sweep(time_point now) {
  active_time_ += std::min<time_point>(now - last_sweep_, 200 * milliseconds);
  last_sweep_ = now;
  for (pending_connection& it : pending_) {
    if (it.connection && active_time_ - it.accepted >= proof_timeout_) it.connection->close();
  }
  if (now >= paused_until_) set_listening(true);
}

}  // namespace colls
