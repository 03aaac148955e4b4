// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connector: opens the connections of a rank. It dials (connects to) a peer when the connection is
// first used, and accepts connections from peers. The rank that accepts a connection answers with a
// verdict, which says whether it keeps the connection.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// The part of a transport that opens connections. It opens at most one connection between two
/// ranks. If both ranks dial, the connection that the lower rank dials stays. A connection between
/// ranks of one host goes through shared memory if both ranks can share memory.
class connector final : authenticating_listener::handler {
 public:
  class owner {
   public:
    /// Called when a connection has opened, before anything is read from it.
    virtual void opened(connection& conn) = 0;
    /// Called when no connection to the peer can be opened. The reason is `errc::peer_failed` if
    /// the peer has died and `errc::closed` if it has left. Any other reason means that this rank
    /// cannot open a connection, which says nothing about the peer.
    virtual void unreachable(connection& conn, const failure& reason) = 0;
    /// Returns whether an operation waits for the peer.
    virtual bool is_needed(connection& conn) = 0;

   protected:
    ~owner() = default;
  };

  connector(engine& driver, world_info& info, connection_table& connections, owner& transport);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  /// Returns the connection to a peer, and starts to open it if necessary.
  connection& connect(int peer);

  /// Checks whether the peer's host still answers. Called when the peer has acknowledged nothing on
  /// `conn` for a while. The check opens a second connection, which the host accepts, and on which
  /// the host answers keep-alive, even while the peer computes.
  void probe(connection& conn);

  /// Stops dialling. Dials in progress may still succeed. Returns false if dialling was stopped
  /// before.
  bool stop_dialing() { return !std::exchange(stopped_, true); }
  /// Prevents any further connection from opening.
  void close() { closing_ = true; }
  bool is_closing() const { return closing_; }
  void close_listeners();

 private:
  /// A guard that resets a flag when a task ends.
  class flag_guard {
   public:
    explicit flag_guard(bool& flag) : flag_(flag) {}
    flag_guard(const flag_guard&) = delete;
    ~flag_guard() { flag_ = false; }

   private:
    bool& flag_;
  };

  // Opens the connection of this rank to itself. Messages to itself go through a socket pair with a
  // connection at each end.
  void open_to_self(connection& out);

  // ---- dialling

  // Dials until the connection opens. If a connection is dropped before it is authenticated, dials
  // again while an operation needs it, because a peer whose system accepts connections is alive,
  // however long it computes. No attempt lasts longer than an operation may wait for a byte.
  task<> dial(connection& conn);

  // Connects to the peer's listener and waits until keep-alive fails or the peer drops the
  // connection. While the peer computes, the connection stays in the backlog of the listener. When
  // the peer accepts the connection, the peer finds that this rank has closed it, and drops it.
  task<> probe_host(connection& conn);
  // Returns whether `ec` means that the peer's host cannot be reached, as keep-alive reports it.
  static bool is_network_error(std::error_code ec);
  // Returns whether `ec` means that the local system lacks a resource, which says nothing about the
  // peer.
  static bool is_local_shortage(std::error_code ec);
  bool is_on_this_host(int peer) const {
    return world_.node_of[static_cast<std::size_t>(peer)] == world_.node;
  }
  time_point handshake_deadline() const { return world_.cfg.timeout.after(engine_.now()); }

  // Dials a rank of this host through its local socket, in order to share memory. Returns false if
  // it has not dialled, either because the rank is on another host, or because the local socket
  // does not work or has been congested for long (another user may fill it). Sets `*is_alive` to
  // whether the peer's system answered, and `*reason` to the error if a rank of this host was not
  // dialled.
  task<bool> dial_local(connection& conn, endpoint address, bool* is_alive,
                        std::error_code* reason);

  // Accepts a connection that a peer has dialled through the local socket. The peer sends the
  // descriptor of the memory after it has received the verdict, unless it has given up the
  // connection.
  task<> accept_local(std::unique_ptr<stream> socket, int peer);

  // Logs that TCP replaces shared memory. Called only after TCP has connected, because otherwise
  // the peer cannot be reached at all.
  void log_tcp_fallback(int peer, std::error_code reason);
  static void throw_no_shared_memory(std::error_code ec);
  void log_no_shared_memory(std::error_code ec);
  // Logs a shortage of resources, on either side, that may pass, such as too many open files.
  void log_shortage(int peer, const char* reason);

  void open(connection& conn, detail::descriptor socket,
            std::unique_ptr<shm::ring_buffer> ring = nullptr);

  void adopt(connection& conn, detail::descriptor socket);

  // ---- accepting

  void handle_peer(std::unique_ptr<stream> socket, const hello& greeting) override;

  task<> accept(std::unique_ptr<stream> socket, int peer, connection_purpose purpose);

  // Returns whether this rank has ended its connection to a peer that may be alive and may not know
  // that the connection has ended.
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
  task_group tasks_;  // last, because its tasks use all members above
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connector.ipp>
#endif
