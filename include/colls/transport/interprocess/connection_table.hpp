// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// connection_table: holds the connections of one rank to its peers, and decides which of them to
// poll.

#include <colls/transport/interprocess/connection.hpp>

#include <algorithm>
#include <bit>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

namespace colls::interprocess {

/// The connections of a rank, whether or not they are open. A connection stays in the table until
/// the table is destroyed.
class connection_table {
 public:
  /// `checks` enables checksums of frames on sockets.
  connection_table(engine& driver, connection_owner& owner, bool checks = false)
      : engine_(driver), owner_(owner), checks_(checks) {}

  /// Returns the connection to a peer. Creates the connection if necessary, but does not open it.
  connection& get(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return *last_used_;
    auto found = all_.find(peer);
    if (found == all_.end()) {
      to_flush_.reserve(all_.size() + 1);  // so that `flush_soon` never allocates
      found = all_.emplace(peer, std::make_unique<connection>(engine_, owner_, peer)).first;
    }
    last_used_ = found->second.get();
    return *last_used_;
  }
  /// Returns the connection to a peer, or null if there is none.
  connection* find(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return last_used_;
    const auto found = all_.find(peer);
    return found == all_.end() ? nullptr : found->second.get();
  }
  /// Opens the connection of this rank to itself over a socket pair, whose ends are `out_end` and
  /// `in_end`. `out` sends through `out_end`. A second connection object, which this function
  /// creates, receives through `in_end`.
  void open_to_self(connection& out, detail::descriptor out_end, detail::descriptor in_end);
  /// Calls `visit(peer, connection)` for every connection.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto& [peer, conn] : all_) visit(peer, *conn);
  }
  /// Returns the connections whose frames go through shared memory.
  const std::vector<connection*>& shared_memory_connections() const { return shm_connections_; }

  /// Opens a connection. If `ring` is null, frames go through the socket.
  void open(connection& conn, detail::descriptor socket, std::unique_ptr<shm::ring_buffer> ring);

  /// Schedules a flush of the connection at the end of the current call of `poll`. If `poll` is not
  /// running, schedules the flush at the end of the next call. Does nothing if the connection has
  /// nothing to write.
  void flush_soon(connection& conn) {
    if (conn.is_idle()) return;
    if (std::find(to_flush_.begin(), to_flush_.end(), &conn) == to_flush_.end()) {
      to_flush_.push_back(&conn);
    }
  }
  /// Reads from and writes to the connections as much as possible. Returns whether there was any
  /// progress. `receives` holds the posted receives of this rank. Some operations wait for messages
  /// for which they have posted no receive. `add_awaited(add)` must call `add(connection)` for each
  /// connection on which this rank waits for such a message.
  template <class AddAwaited>
  bool poll(match_queues& receives, const AddAwaited& add_awaited) {
    bool moved = false;
    for (std::size_t i = 0; i < shm_connections_.size(); ++i) moved |= shm_connections_[i]->pump();
    if (all_.size() > shm_connections_.size()) moved |= poll_sockets(receives, add_awaited);
    for (connection* conn : to_flush_) moved |= conn->flush();
    to_flush_.clear();
    return moved;
  }

  // ---- leaving the world

  /// Writes as many queued frames as possible. Returns whether the caller must call this function
  /// again. This is the case if a connection that is open or about to open still has queued frames.
  /// It is also the case if a peer may already have opened its end of a connection while the end of
  /// this rank is not open yet. This rank must then open its end, so that it can send the peer a
  /// goodbye (the last frame of a rank that leaves the world).
  bool flush_all();
  void say_goodbye();
  void shut_writing();
  bool any_open() const {
    return std::any_of(all_.begin(), all_.end(),
                       [](const auto& entry) { return entry.second->is_open(); });
  }
  void shut() {
    for (auto& [peer, conn] : all_) conn->shut();
  }

  // ---- sleeping and waking with shared memory

  /// Wakes the sleeping peers to which this rank has written, or from which it has read, through
  /// shared memory.
  void wake_peers() {
    for (connection* conn : shm_connections_) conn->wake_peer();
  }
  /// Prepares the connections to wake this thread, which is about to sleep. Returns false if there
  /// is already work to do. In this case the thread must not sleep, but must poll again.
  bool arm() {
    bool armed = true;
    for (connection* conn : shm_connections_) armed &= conn->arm();
    enable_read_events();
    return armed;
  }
  void disarm() {
    for (connection* conn : shm_connections_) conn->disarm();
  }

 private:
  static constexpr int self_receiver = -1;  // the key of the receiving end of the self-connection
  static constexpr std::size_t max_selective = 8;
  static constexpr int max_selected = 4;
  static constexpr std::size_t max_receives = 15;
  static constexpr std::size_t max_without_events = max_selected;

  // Polls the sockets. Reading a socket that has no data costs a system call, which delays the
  // other ranks on this core. If this rank waits only for messages on a few known connections, this
  // function therefore reads only these connections in most calls. It polls all connections in
  // every eighth call.
  template <class AddAwaited>
  bool poll_sockets(match_queues& receives, const AddAwaited& add_awaited) {
    const bool many = socket_connections_.size() > max_selective;
    if (++polls_ % 8 == 0 || many) return poll_all(many);
    std::uint32_t selected = 0;
    for (std::size_t i = 0; i < socket_connections_.size(); ++i) {
      if (socket_connections_[i]->is_busy()) selected |= 1u << i;
    }
    const auto add = [&](const connection& conn) {
      const auto it = std::find(socket_connections_.begin(), socket_connections_.end(), &conn);
      if (it != socket_connections_.end()) selected |= 1u << (it - socket_connections_.begin());
    };
    add_awaited(add);
    const auto add_source = [&](const posted_receive& receive) {
      const auto is_source = [&](const connection* conn) {
        return conn->peer() == receive.key.peer;
      };
      const auto it =
          std::find_if(socket_connections_.begin(), socket_connections_.end(), is_source);
      if (it == socket_connections_.end()) return false;
      selected |= 1u << (it - socket_connections_.begin());
      return true;
    };
    const bool known = receives.posted_count() <= max_receives && receives.all_posted(add_source);
    if (!known || selected == 0 || std::popcount(selected) > max_selected) return poll_all(true);
    bool moved = false;
    for (; selected != 0; selected &= selected - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(selected));
      connection& conn = *socket_connections_[i];
      if (conn.is_open()) moved |= conn.pump();
    }
    // This thread reads the sockets directly, so epoll need not report the bytes that arrive. Each
    // report would also delay the rank that sends the bytes.
    if (moved && read_events_ && engine_.spins_now() &&
        socket_connections_.size() <= max_without_events) {
      read_events_ = false;
      for (connection* conn : socket_connections_) conn->set_read_events(false);
    }
    return moved;
  }
  // Polls all sockets. If `read_events_` is false, reads the sockets directly. If `read_events_` or
  // `dispatch` is true, or if a socket has frames to write, handles the events that epoll reports.
  bool poll_all(bool dispatch) {
    bool moved = false;
    if (!read_events_) {
      for (std::size_t i = 0; i < socket_connections_.size(); ++i) {
        if (socket_connections_[i]->is_open()) moved |= socket_connections_[i]->pump();
        dispatch |= !socket_connections_[i]->is_idle();
      }
    }
    return read_events_ || dispatch ? engine_.dispatch() || moved : moved;
  }
  void enable_read_events() {
    if (read_events_) return;
    read_events_ = true;
    for (connection* conn : socket_connections_) conn->set_read_events(true);
  }

  engine& engine_;
  connection_owner& owner_;
  bool checks_;
  std::unordered_map<int, std::unique_ptr<connection>> all_;
  connection* last_used_ = nullptr;
  std::vector<connection*> shm_connections_;
  std::vector<connection*> socket_connections_;  // without the connection of this rank to itself
  unsigned polls_ = 0;
  bool read_events_ = true;  // whether epoll reports bytes that arrive on sockets
  std::vector<connection*> to_flush_;
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connection_table.ipp>
#endif
