// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connector: opens the connections of a rank. The connector dials (connects to) a peer when the
// connection is first used, and accepts the connections that peers dial. The rank that accepts a
// connection answers with a verdict, which says whether it keeps the connection.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// The part of a transport that opens connections. There is at most one connection between two
/// ranks. If both dial, they keep the connection that the lower rank dials. A connection between
/// ranks of one host goes through shared memory if both ranks can share memory.
class connector final : authenticating_listener::handler {
 public:
  class owner {
   public:
    /// Called when a connection has opened, before anything is read from it.
    virtual void opened(connection& conn) = 0;
    /// Called when no connection to the peer can be opened. `reason.code` is `errc::closed` if the
    /// peer has left the world. It is `errc::peer_failed` if the peer seems to be dead or the
    /// handshake with the peer has failed. Any other code means that this rank or the store has a
    /// problem. The peer may then be alive.
    virtual void unreachable(connection& conn, const failure& reason) = 0;
    /// Returns whether an operation of this rank waits for the peer.
    virtual bool is_needed(connection& conn) = 0;

   protected:
    ~owner() = default;
  };

  connector(engine& driver, world_info& info, connection_table& connections, owner& transport);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  /// Returns the connection to a peer. If the connection has not opened yet, starts to open it,
  /// unless `stop_dialing` has been called.
  connection& connect(int peer);

  /// Starts a probe of the peer's host. If the host no longer answers, the probe ends `conn` with
  /// an error. Called when the peer has acknowledged nothing on `conn` for a while. The probe opens
  /// a second connection to the peer. Even while the peer is busy with a computation, the kernel of
  /// its host accepts the second connection and answers the keep-alive packets on it.
  void probe(connection& conn);

  /// Prevents this rank from dialling any further peers. Dials that are already in progress may
  /// still succeed. Returns false if this function had been called before.
  bool stop_dialing() { return !std::exchange(stopped_, true); }
  /// Prevents any further connection from opening.
  void close() { closing_ = true; }
  bool is_closing() const { return closing_; }
  void close_listeners();

 private:
  /// A guard that sets a flag to false when a task ends.
  class flag_guard {
   public:
    explicit flag_guard(bool& flag) : flag_(flag) {}
    flag_guard(const flag_guard&) = delete;
    ~flag_guard() { flag_ = false; }

   private:
    bool& flag_;
  };

  // Opens the connection of this rank to itself, which is a socket pair with a `connection` at each
  // end.
  void open_to_self(connection& out);

  // ---- dialling

  // Dials until the connection opens or the peer seems to be dead. The peer counts as alive if its
  // kernel accepts connections. If a live peer does not complete the handshake within
  // `config::timeout`, dials again as long as an operation needs the connection.
  task<> dial(connection& conn);

  // Performs a probe (see `probe`). Connects to the peer's listener, shuts down the write side of
  // the new connection, and waits until keep-alive fails or the peer closes the connection. While
  // the peer is busy, the connection stays in the backlog of the peer's listener. Once the peer has
  // accepted the connection, it reads the end of the stream and closes the connection.
  task<> probe_host(connection& conn);
  // Returns whether `ec` means that the peer's host cannot be reached. A socket reports such an
  // error if keep-alive fails.
  static bool is_network_error(std::error_code ec);
  // Returns whether `ec` means that this process or this host lacks a resource. Such an error does
  // not show whether the peer is alive.
  static bool is_local_shortage(std::error_code ec);
  bool is_on_this_host(int peer) const {
    return world_.node_of[static_cast<std::size_t>(peer)] == world_.node;
  }
  time_point handshake_deadline() const { return world_.cfg.timeout.after(engine_.now()); }

  // Dials the peer through its local socket, in order to share memory. Returns false if the caller
  // must use TCP instead. This is so if the peer is on another host, if this rank has no local
  // socket, or if the peer's local socket does not work. A local socket whose backlog stays full
  // counts as one that does not work, because another user may be filling the backlog. In all other
  // cases, returns true. If the connection is not open when this function returns true, the caller
  // must dial again.
  //
  // Sets `*is_alive` to true if the local socket accepts the connection or its backlog is full. If
  // the peer is on this host and its local socket does not work, sets `*reason` to the error.
  task<bool> dial_local(connection& conn, endpoint address, bool* is_alive,
                        std::error_code* reason);

  // Accepts a connection that a peer has opened through the local socket. This function is called
  // after this rank has told the peer that the handshake has succeeded. The peer then sends the
  // descriptor of the shared memory, reports that it could not create shared memory, or closes the
  // connection.
  task<> accept_local(std::unique_ptr<stream> socket, int peer);

  // If `reason` is an error, logs that this rank reaches the peer by TCP and not by shared memory
  // because of this error. Must be called only after TCP has connected, because the log entry would
  // be wrong if TCP failed.
  void log_tcp_fallback(int peer, std::error_code reason);
  static void throw_no_shared_memory(std::error_code ec);
  void log_no_shared_memory(std::error_code ec);
  // Logs that a connection cannot be opened yet because this rank or the peer lacks a resource,
  // such as file descriptors. The shortage may be temporary.
  void log_shortage(int peer, const char* reason);

  void open(connection& conn, detail::descriptor socket,
            std::unique_ptr<shm::ring_buffer> ring = nullptr);

  void adopt(connection& conn, detail::descriptor socket);

  // ---- accepting

  void handle_peer(std::unique_ptr<stream> socket, const hello& greeting) override;

  task<> accept(std::unique_ptr<stream> socket, int peer, connection_purpose purpose);

  // Returns whether the connection to the peer has ended on this rank although the peer has sent no
  // goodbye. The peer may then be alive and may not know that the connection has ended.
  bool has_abandoned(int peer);
  bool may_accept(int peer);

  static constexpr time_point max_congestion = 100 * milliseconds;
  static constexpr time_point dead_peer_timeout = 10 * seconds;
  static constexpr time_point probe_interval = 5 * seconds;

  engine& engine_;
  world_info& world_;
  connection_table& connections_;
  owner& owner_;
  bool logged_tcp_fallback_ = false;
  bool logged_no_shared_memory_ = false;
  bool logged_shortage_ = false;
  bool logged_congestion_ = false;
  bool stopped_ = false;
  bool closing_ = false;
  std::optional<authenticating_listener> listener_;
  std::optional<authenticating_listener> local_listener_;
  task_group tasks_;  // the last member, because its tasks use all the others
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connector.ipp>
#endif
