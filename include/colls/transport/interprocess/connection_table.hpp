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
  connection_table(scheduler& runner, connection_owner& owner)
      : scheduler_(runner), owner_(owner) {}

  /// Returns the connection to a peer. Creates the connection if necessary, but does not open it.
  connection& get(int peer) {
    if (last_used_ != nullptr && last_used_->peer() == peer) return *last_used_;
    auto found = all_.find(peer);
    if (found == all_.end()) {
      to_flush_.reserve(all_.size() + 1);  // so that `flush_soon` never allocates
      found = all_.emplace(peer, std::make_unique<connection>(scheduler_, owner_, peer)).first;
    }
    last_used_ = found->second.get();
    return *last_used_;
  }
  /// Returns the connection to a peer, or null if there is none.
  [[gnu::always_inline]] connection* find(int peer) {
    return last_used_ != nullptr && last_used_->peer() == peer ? last_used_ : look_up(peer);
  }
  /// Opens the connection of this rank to itself. `out` sends through the pipe `out_end`. A second
  /// connection object, which this function creates, receives through the other end, `in_end`.
  void open_to_self(connection& out, std::unique_ptr<pipe> out_end, std::unique_ptr<pipe> in_end);
  /// Calls `visit(peer, connection)` for every connection.
  template <class Visit>
  void for_each(Visit visit) {
    for (auto& [peer, conn] : all_) visit(peer, *conn);
  }
  /// Returns the connections whose peers can map memory of this rank.
  const std::vector<connection*>& shared_memory_connections() const { return memory_sharing_; }

  /// Opens a connection through the pipe `opened`.
  void open(connection& conn, std::unique_ptr<pipe> opened);

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
    for (std::size_t i = 0; i < polled_.size(); ++i) moved |= polled_[i]->poll();
    if (all_.size() > polled_.size()) moved |= poll_reported(receives, add_awaited);
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
  /// Returns whether a connection is open to a peer that this rank has not left behind.
  bool any_open() const {
    return std::any_of(all_.begin(), all_.end(), [](const auto& entry) {
      return entry.second->is_open() && !entry.second->is_fenced;
    });
  }
  void shut() {
    for (auto& [peer, conn] : all_) conn->shut();
  }

  // ---- sleeping and waking

  /// Wakes the sleeping peers of polled connections that have something to read or can write again.
  void wake_peers() {
    for (connection* conn : polled_) conn->wake_peer();
  }
  /// Prepares the connections to wake this thread, which is about to sleep. Returns false if there
  /// is already work to do. In this case the thread must not sleep, but must poll again.
  bool arm() {
    bool armed = true;
    for (connection* conn : polled_) armed &= conn->arm();
    enable_reports();
    return armed;
  }
  void disarm() {
    for (connection* conn : polled_) conn->disarm();
  }

 private:
  [[gnu::noinline]] connection* look_up(int peer) {
    const auto found = all_.find(peer);
    return found == all_.end() ? nullptr : found->second.get();
  }

  static constexpr int self_receiver = -1;  // the key of the receiving end of the self-connection
  static constexpr std::size_t max_selective = 8;
  static constexpr int max_selected = 4;
  static constexpr std::size_t max_receives = 15;
  static constexpr std::size_t max_without_reports = max_selected;

  // Polls the connections whose arrivals the scheduler reports. To poll one that has no data costs
  // a system call, which delays the other ranks on this core. If this rank waits only for messages
  // on a few known connections, this function therefore reads only these connections in most calls.
  // It polls all connections in every eighth call.
  template <class AddAwaited>
  bool poll_reported(match_queues& receives, const AddAwaited& add_awaited) {
    const bool many = reported_.size() > max_selective;
    if (++polls_ % 8 == 0 || many) return poll_all(many);
    std::uint32_t selected = 0;
    for (std::size_t i = 0; i < reported_.size(); ++i) {
      if (reported_[i]->is_busy()) selected |= 1u << i;
    }
    const auto add = [&](const connection& conn) {
      if (conn.reported_index >= 0) selected |= 1u << conn.reported_index;
    };
    add_awaited(add);
    const auto add_source = [&](const posted_receive& receive) {
      const auto is_source = [&](const connection* conn) {
        return conn->peer() == receive.key.peer;
      };
      const auto it = std::find_if(reported_.begin(), reported_.end(), is_source);
      if (it == reported_.end()) return false;
      selected |= 1u << (it - reported_.begin());
      return true;
    };
    const std::size_t posted = receives.posted_count();
    const bool known = posted == 0 || (posted <= max_receives && receives.all_posted(add_source));
    if (!known || selected == 0 || std::popcount(selected) > max_selected) return poll_all(true);
    bool moved = false;
    for (; selected != 0; selected &= selected - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(selected));
      moved |= reported_[i]->poll();
    }
    // This thread polls the connections, so no event need report the bytes that arrive. Each report
    // would also delay the rank that sends the bytes.
    if (moved && reports_enabled_ && scheduler_.spins_now() &&
        reported_.size() <= max_without_reports) {
      reports_enabled_ = false;
      for (connection* conn : reported_) conn->report_arrivals(false);
    }
    return moved;
  }
  // Polls all these connections. If reports are disabled, reads the connections directly. If
  // reports are enabled, if `dispatch` is true, or if a connection has frames to write, dispatches
  // events.
  bool poll_all(bool dispatch) {
    bool moved = false;
    if (!reports_enabled_) {
      for (std::size_t i = 0; i < reported_.size(); ++i) {
        moved |= reported_[i]->poll();
        dispatch |= !reported_[i]->is_idle();
      }
    }
    return reports_enabled_ || dispatch ? scheduler_.dispatch_events() || moved : moved;
  }
  void enable_reports() {
    if (reports_enabled_) return;
    reports_enabled_ = true;
    for (connection* conn : reported_) conn->report_arrivals(true);
  }

  scheduler& scheduler_;
  connection_owner& owner_;
  std::unordered_map<int, std::unique_ptr<connection>> all_;
  connection* last_used_ = nullptr;
  std::vector<connection*> polled_;
  std::vector<connection*> reported_;  // the others, without that of this rank to itself
  std::vector<connection*> memory_sharing_;
  unsigned polls_ = 0;
  bool reports_enabled_ = true;  // whether the scheduler reports what arrives
  std::vector<connection*> to_flush_;
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/connection_table.ipp>
#endif
