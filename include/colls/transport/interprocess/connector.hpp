// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connector: opens the connections of a rank by means of carriers. The connector dials (connects
// to) a peer when the connection is first used, and accepts the connections that peers dial. The
// rank that accepts a connection answers with a verdict, which says whether it keeps the
// connection.

#include <colls/base/flag_guard.hpp>
#include <colls/coroutine/task_group.hpp>
#include <colls/transport/interprocess/carrier/carrier.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// The part of a transport that opens connections. There is at most one connection between two
/// ranks. If both dial, they keep the connection that the lower rank dials. Each carrier in turn
/// dials the peer, until one of them reaches it.
class connector final : carrier::owner {
 public:
  class owner {
   public:
    /// Called when a connection has opened, before anything is read from it.
    virtual void opened(connection& conn) = 0;
    /// Called when no connection to the peer can be opened. `reason.code` is `errc::closed` if the
    /// peer has left the world. It is `errc::peer_failed` if the peer seems to be dead or the
    /// handshake with the peer has failed. It is `errc::excluded` if the peer goes on without this
    /// rank. Any other code means that this rank or the store has a problem. The peer may then be
    /// alive.
    virtual void unreachable(connection& conn, const failure& reason) = 0;
    /// Returns whether this rank goes on without the peer.
    virtual bool is_excluded(int peer) = 0;
    /// Returns whether an operation of this rank waits for the peer.
    virtual bool is_needed(connection& conn) = 0;
    /// Returns whether the peer, which does not listen any more, has left the world.
    virtual task<bool> has_left(int peer) = 0;
    /// Called some time after a connection has ended. `proved` tells whether the peer is known to
    /// have ended, too.
    virtual void loss_examined(connection& conn, bool proved) = 0;

   protected:
    ~owner() = default;
  };

  connector(scheduler& runner, int rank, std::vector<std::unique_ptr<carrier>> carriers,
            connection_table& connections, owner& transport);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  /// Starts the carriers, which may open connections at once.
  void start();

  /// Returns the connection to a peer. If the connection has not opened yet, starts to open it,
  /// unless `stop_dialing` has been called.
  connection& connect(int peer);

  /// Starts a probe of the peer's host. If the host no longer answers, the probe ends `conn` with
  /// an error. Called when the peer has acknowledged nothing on `conn` for a while.
  void probe(connection& conn);

  /// Finds out whether the peer of a connection that has ended still listens, and then calls
  /// `owner::loss_examined`.
  void examine_loss(connection& conn);

  /// Connects to the peer of a connection that has ended, only to learn whether the peer goes on
  /// without this rank. If it does, calls `owner::unreachable` with `errc::excluded`.
  void ask_lost_peer(connection& conn);

  /// Prevents this rank from dialling any further peers. Dials that are already in progress may
  /// still succeed. Returns false if this function had been called before.
  bool stop_dialing() { return !std::exchange(stopped_, true); }
  /// Prevents any further connection from opening.
  void close() { closing_ = true; }
  bool is_closing() const { return closing_; }
  void close_listeners();

 private:
  // Dials until the connection opens or the peer seems to be dead. The peer counts as alive if its
  // system accepts connections. If a live peer does not complete the handshake in time, dials again
  // as long as an operation needs the connection.
  task<> dial(connection& conn);
  task<> probe_host(connection& conn);
  task<> dial_lost_peer(connection& conn);
  task<> dial_to_ask(connection& conn);
  // Lets each carrier in turn dial once, until one of them reaches the peer.
  task<> dial_once(dial_attempt& attempt);
  static void set_address(failure& reason, const connection& conn, const dial_attempt& attempt);
  // Logs that a connection cannot be opened yet because this rank or the peer lacks a resource,
  // such as file descriptors. The shortage may be temporary.
  void log_shortage(int peer, const char* reason);

  // ---- called by the carriers

  COLLS_ONCE verdict judge(int peer) override;
  COLLS_ONCE void accept_ended(int peer) override;
  bool is_superseded(int peer) override {
    const connection& conn = connections_.get(peer);
    return conn.is_open() || conn.has_ended();
  }
  bool is_wanted(int peer) override { return !is_superseded(peer) && !closing_; }
  void set_half_open(int peer, bool half_open) override {
    connections_.get(peer).is_half_open = half_open;
  }
  void set_address(int peer, std::string address) override {
    connections_.get(peer).set_address(std::move(address));
  }
  COLLS_ONCE void opened(int peer, std::unique_ptr<pipe> end) override;
  void abort(int peer) override { connections_.get(peer).abort(); }

  // Returns whether the connection to the peer has ended on this rank although the peer has sent no
  // goodbye. The peer may then be alive and may not know that the connection has ended.
  bool has_abandoned(int peer);
  bool may_accept(int peer);

  static constexpr time_point probe_interval = 5 * seconds;
  static constexpr time_point ask_limit = 400 * milliseconds;

  scheduler& scheduler_;
  int rank_;
  connection_table& connections_;
  owner& owner_;
  bool logged_shortage_ = false;
  bool stopped_ = false;
  bool closing_ = false;
  std::vector<std::unique_ptr<carrier>> carriers_;
  task_group tasks_;  // the last member, because its tasks use all the others
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connector.ipp>
#endif
