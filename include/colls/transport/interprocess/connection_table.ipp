// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of connection_table that are not inline. They open connections, and close
// connections when this rank leaves the world.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

namespace colls::interprocess {

COLLS_ONCE void connection_table::open_to_self(connection& out, detail::descriptor out_end,
                                               detail::descriptor in_end) {
  auto receiver = std::make_unique<connection>(engine_, owner_, out.peer());
  connection& in = *all_.insert_or_assign(self_receiver, std::move(receiver)).first->second;
  in.open(std::move(in_end), nullptr, checks_);
  out.open(std::move(out_end), nullptr, checks_);
}

COLLS_ONCE void connection_table::open(connection& conn, detail::descriptor socket,
                                       std::unique_ptr<shm::ring_buffer> ring) {
  std::vector<connection*>& connections = ring != nullptr ? shm_connections_ : socket_connections_;
  connections.push_back(&conn);
  enable_read_events();
  try {
    conn.open(std::move(socket), std::move(ring), checks_);
  } catch (...) {
    connections.pop_back();
    throw;
  }
}

COLLS_ONCE bool connection_table::flush_all() {
  bool any = false;
  for (auto& [peer, conn] : all_) {
    if (conn->is_open()) conn->flush();
    const bool opens = conn->is_open() || conn->is_dialing || conn->is_accepted;
    any |= conn->is_half_open || (!conn->is_idle() && !conn->has_ended() && opens);
  }
  return any;
}

COLLS_ONCE void connection_table::say_goodbye() {
  for (auto& [peer, conn] : all_) {
    if (!conn->is_open()) continue;
    header frame;
    frame.kind = kind::goodbye;
    conn->control(frame);
    conn->flush();
  }
}

COLLS_ONCE void connection_table::shut_writing() {
  for (auto& [peer, conn] : all_) {
    if (conn->is_open()) conn->shut_writing();
  }
}

}  // namespace colls::interprocess
