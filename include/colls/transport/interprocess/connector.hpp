// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connector: opens the connections of a rank. It dials peers at the first use and accepts peers
// that dial.

#include <colls/bootstrap/authenticating_listener.hpp>
#include <colls/bootstrap/world_info.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// Opens one connection between two ranks. If both dial, that of the lower rank stays. Inside a
/// host it goes through shared memory where both sides can.
class connector final : authenticating_listener::handler {
 public:
  class owner {
   public:
    /// A connection has opened, and nothing was read from it yet.
    virtual void opened(connection& conn) = 0;
    /// No connection to the peer opens: it has died (`errc::peer_failed`), it has left
    /// (`errc::closed`), or this rank cannot open one, which says nothing about the peer.
    virtual void unreachable(connection& conn, const failure& reason) = 0;
    /// Whether an operation waits for the peer.
    virtual bool is_needed(connection& conn) = 0;

   protected:
    ~owner() = default;
  };

  connector(engine& driver, world_info& world, connection_table& connections, owner& transport);
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  /// Returns the connection to a peer. Starts to open it at its first use.
  connection& connect(int peer);

  /// Checks whether the peer's host is still there, when it acknowledges nothing on a connection.
  /// The host accepts another connection and answers keep-alive even while the peer computes.
  void probe(connection& conn);

  /// Dials no more; dials in progress may still succeed. False: it was called before.
  bool stop_dialing() { return !std::exchange(stopped_, true); }
  /// From now on no connection opens.
  void close() { closing_ = true; }
  bool is_closing() const { return closing_; }
  void close_listeners();

 private:
  /// Resets a flag when a task ends.
  class flag_guard {
   public:
    explicit flag_guard(bool& flag) : flag_(flag) {}
    flag_guard(const flag_guard&) = delete;
    ~flag_guard() { flag_ = false; }

   private:
    bool& flag_;
  };

  // Messages of a rank to itself go through a socket pair, with a connection at each end.
  void open_to_self(connection& out);

  // ---- dialling

  // Dials until the connection opens. A connection that is dropped before it is authenticated is
  // dialled again while an operation needs it: a peer whose system accepts connections lives,
  // however long it computes. No attempt lasts longer than an operation may wait for a byte.
  task<> dial(connection& conn);

  // Connects to the peer's listener and waits for keep-alive to fail. A peer that computes leaves
  // the connection in its backlog; when it accepts, it finds the connection closed and drops it.
  task<> probe_host(connection& conn);
  // Whether keep-alive reports that the host cannot be reached.
  static bool is_network_error(std::error_code ec);
  // Whether the local system lacks a resource, which says nothing about the peer.
  static bool is_local_shortage(std::error_code ec);
  bool is_on_this_host(int peer) const {
    return world_.node_of[static_cast<std::size_t>(peer)] == world_.node;
  }
  time_point handshake_deadline() const { return world_.cfg.timeout.after(engine_.now()); }

  // Dials a rank of this host through its local socket, to share memory, unless that socket is
  // congested for long (another user may fill it). Returns whether it dialled. `*is_alive`: the
  // peer's system took the connection. `*reason`: why a rank of this host was not dialled.
  task<bool> dial_local(connection& conn, endpoint address, bool* is_alive,
                        std::error_code* reason);

  // Accepts such a dial. The descriptor of the memory follows the verdict, unless the peer has
  // changed its mind.
  task<> accept_local(std::unique_ptr<stream> socket, int peer);

  // Called once TCP has connected, since an unreachable peer is no fallback.
  void log_tcp_fallback(int peer, std::error_code reason);
  static void throw_no_shared_memory(std::error_code ec);
  void log_no_shared_memory(std::error_code ec);
  // For a shortage of resources on either side that may pass, such as too many open files.
  void log_shortage(int peer, const char* reason);

  void open(connection& conn, detail::descriptor socket,
            std::unique_ptr<shm::ring_buffer> ring = nullptr);

  void adopt(connection& conn, detail::descriptor socket);

  // ---- accepting

  void handle_peer(std::unique_ptr<stream> socket, const hello& greeting) override;

  task<> accept(std::unique_ptr<stream> socket, int peer, connection_purpose purpose);

  // Whether this rank has ended its connection to a peer that may be alive without knowing it.
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
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connector.ipp>
#endif
