// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of connector that are not inline. They dial peers and accept connections.

#include <colls/base/compiler.hpp>
#include <colls/base/log.hpp>
#include <colls/transport/interprocess/connector.hpp>

#include <algorithm>
#include <cerrno>
#include <new>

namespace colls::interprocess {

COLLS_ONCE connector::connector(scheduler& runner, int rank,
                                std::vector<std::unique_ptr<carrier>> carriers,
                                connection_table& connections, owner& transport)
    : scheduler_(runner),
      rank_(rank),
      connections_(connections),
      owner_(transport),
      carriers_(std::move(carriers)),
      tasks_(runner) {}

COLLS_ONCE void connector::start() {
  for (const auto& each : carriers_) each->start(static_cast<carrier::owner&>(*this));
}

COLLS_ONCE connection& connector::connect(int peer) {
  connection& conn = connections_.get(peer);
  if (!conn.is_open() && !conn.is_dialing && !conn.is_accepted && !conn.has_ended() && !stopped_) {
    if (peer == rank_) {
      auto ends = carriers_.back()->open_to_self();
      connections_.open_to_self(conn, std::move(ends.first), std::move(ends.second));
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
  if (conn.is_probing || scheduler_.now() < conn.next_probe) return;
  try {
    tasks_.start(probe_host(conn));
  } catch (const std::bad_alloc&) {
    conn.next_probe = scheduler_.now() + probe_interval;
  }
}

COLLS_ONCE void connector::close_listeners() {
  for (const auto& each : carriers_) each->stop_listening();
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
  time_point last_alive = scheduler_.now();
  bool hopeless = false;
  bool wanted = true;
  while (wanted && !conn.is_open() && !conn.has_ended() && !closing_ && !hopeless) {
    dial_attempt attempt{conn.peer()};
    bool dropped = false;
    try {
      const flag_guard opening(conn.is_half_open);
      auto dialing_once = dial_once(attempt);
      co_await dialing_once;
      set_address(reason, conn, attempt);
      if (attempt.error) {
        reason.set_detail("it cannot be reached: %s", attempt.error.message().c_str());
        hopeless = attempt.error == std::errc::connection_refused;
        reason.proved = hopeless;
        if (attempt.is_short_of_resources) {
          log_shortage(conn.peer(), attempt.error.message().c_str());
        }
      }
    } catch (const error& thrown) {
      const failure& cause = thrown.record();
      set_address(reason, conn, attempt);
      if (!attempt.has_address && cause.code == errc::unreachable) {
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
      if (cause.code == errc::crypto_failed || cause.code == errc::insecure_bind ||
          cause.code == errc::excluded) {
        // None of these errors shows that the peer is dead.
        reason = cause;
        reason.culprit = rank_;
        hopeless = true;
        break;
      }
      reason.set_detail("%.300s", cause.detail);
      dropped = cause.code == errc::unreachable;
      if (cause.code == errc::timeout) {
        attempt.is_peer_alive = true;
        wanted = owner_.is_needed(conn);
      }
      if (cause.code == errc::too_many_files) {
        attempt.is_peer_alive = true;
        log_shortage(conn.peer(), cause.detail);
      }
      hopeless = cause.code == errc::auth_failed || cause.code == errc::protocol_error ||
                 cause.code == errc::peer_failed;
    } catch (const std::bad_alloc&) {
      attempt.is_peer_alive = true;  // a lack of memory on this rank says nothing about the peer
    }
    if (conn.is_open() || hopeless || !wanted) break;
    if (attempt.is_peer_alive) last_alive = scheduler_.now();
    hopeless = scheduler_.now() - last_alive >= dead_peer_timeout;
    co_await scheduler_.sleep_until(scheduler_.now() + pause);
    // The pause stays short if the peer has closed the connection during the handshake. While other
    // processes open very many connections to the peer, the peer may close several connections of
    // this rank before it serves one.
    pause = std::min<time_point>(2 * pause, dropped ? 50 * milliseconds : seconds);
  }
  const bool looks_dead = hopeless && reason.code == errc::peer_failed;
  if (looks_dead && !conn.is_open() && !closing_) {
    const bool has_left = co_await owner_.has_left(conn.peer());
    if (has_left) reason = peer_left_failure(conn.peer());
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
    for (std::size_t i = 0; i < carriers_.size(); ++i) {
      const bool each_answers = co_await carriers_[i]->answers(conn.peer());
      answers = answers && each_answers;
    }
  } catch (const error&) {
    // This rank cannot learn the address of the peer's listener. The peer's host may still answer,
    // so `answers` remains true.
  } catch (const std::bad_alloc&) {
  }
  conn.next_probe = scheduler_.now() + probe_interval;
  if (!answers && conn.is_silent(scheduler_.now())) conn.fail(ETIMEDOUT);
}

COLLS_ONCE void connector::examine_loss(connection& conn) {
  try {
    tasks_.start(dial_lost_peer(conn));
  } catch (const std::bad_alloc&) {
    owner_.loss_examined(conn, false);
  }
}

COLLS_ONCE task<> connector::dial_lost_peer(connection& conn) {
  // The kernel closes the sockets of a process one after the other, so its listener may still
  // accept for a moment.
  const time_point limit = scheduler_.now() + seconds;
  bool is_refused = false;
  for (time_point pause = milliseconds; !is_refused && scheduler_.now() < limit; pause *= 2) {
    try {
      for (std::size_t i = 0; i < carriers_.size() && !is_refused; ++i) {
        is_refused = co_await carriers_[i]->is_refused(conn.peer(), limit);
      }
    } catch (const std::exception&) {
      break;  // this rank does not know where the peer listens, or has no memory
    }
    if (!is_refused) co_await scheduler_.sleep_until(scheduler_.now() + pause);
  }
  if (!closing_) owner_.loss_examined(conn, is_refused);
}

COLLS_ONCE void connector::ask_lost_peer(connection& conn) {
  if (!conn.has_ended()) (void)connect(conn.peer());
  if (!conn.has_ended() || conn.is_dialing || stopped_) return;
  try {
    tasks_.start(dial_to_ask(conn));
  } catch (const std::bad_alloc&) {
    // The caller asks again.
  }
}

COLLS_ONCE task<> connector::dial_once(dial_attempt& attempt) {
  for (std::size_t i = 0; i < carriers_.size(); ++i) {
    const bool is_dialed = co_await carriers_[i]->dial(attempt);
    if (is_dialed) co_return;
  }
}

COLLS_ONCE task<> connector::dial_to_ask(connection& conn) {
  conn.is_dialing = true;
  const flag_guard dialing(conn.is_dialing);
  const flag_guard opening(conn.is_half_open);
  failure answer;
  try {
    dial_attempt attempt{conn.peer(), time_span::from_nanoseconds(ask_limit)};
    auto dialing_once = dial_once(attempt);
    co_await dialing_once;
  } catch (const error& thrown) {
    answer = thrown.record();
  } catch (const std::bad_alloc&) {
  }
  if (answer.code == errc::excluded && !closing_) owner_.unreachable(conn, answer);
}

COLLS_ONCE void connector::set_address(failure& reason, const connection& conn,
                                       const dial_attempt& attempt) {
  if (!attempt.has_address) return;
  std::snprintf(reason.address, sizeof reason.address, "%s", conn.address().c_str());
}

COLLS_ONCE void connector::log_shortage(int peer, const char* reason) {
  if (std::exchange(logged_shortage_, true)) return;
  log_warn("rank %d cannot open a connection to rank %d yet: %s", rank_, peer, reason);
}

COLLS_ONCE void connector::opened(int peer, std::unique_ptr<pipe> end) {
  connection& conn = connections_.get(peer);
  if (end == nullptr) return conn.fail(ECONNRESET);
  try {
    connections_.open(conn, std::move(end));
  } catch (const std::exception&) {
    return conn.abort();  // the peer, which has opened its end, sees this end close
  }
  owner_.opened(conn);
}

COLLS_ONCE verdict connector::judge(int peer) {
  if (closing_) return verdict::unavailable;
  if (owner_.is_excluded(peer)) return verdict::excluded;
  if (!may_accept(peer)) {
    return has_abandoned(peer) ? verdict::connection_failed : verdict::duplicate;
  }
  connections_.get(peer).is_accepted = true;
  return verdict::accepted;
}

COLLS_ONCE void connector::accept_ended(int peer) {
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
         (!known->is_open() && !known->has_ended() && !(known->is_dialing && rank_ < peer));
}

}  // namespace colls::interprocess
