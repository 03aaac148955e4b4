// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The member functions of connection_table that are not inline. They open connections, and close
// connections when this rank leaves the world.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

namespace colls::interprocess {

COLLS_ONCE void connection_table::open_to_self(connection& out, std::unique_ptr<pipe> out_end,
                                               std::unique_ptr<pipe> in_end) {
  auto receiver = std::make_unique<connection>(scheduler_, owner_, out.peer());
  connection& in = *all_.insert_or_assign(self_receiver, std::move(receiver)).first->second;
  in.open(std::move(in_end));
  out.open(std::move(out_end));
}

COLLS_ONCE void connection_table::open(connection& conn, std::unique_ptr<pipe> opened) {
  const pipe_properties properties = opened->properties();
  std::vector<connection*>& connections = properties.is_polled ? polled_ : reported_;
  conn.reported_index = properties.is_polled ? -1 : static_cast<int>(reported_.size());
  memory_sharing_.reserve(memory_sharing_.size() + 1);
  connections.push_back(&conn);
  enable_reports();
  try {
    conn.open(std::move(opened));
  } catch (...) {
    connections.pop_back();
    conn.reported_index = -1;
    throw;
  }
  if (properties.shares_memory) memory_sharing_.push_back(&conn);
}

COLLS_ONCE bool connection_table::flush_all() {
  bool any = false;
  for (auto& [peer, conn] : all_) {
    if (conn->is_open()) conn->flush();
    if (conn->is_fenced) continue;
    const bool opens = conn->is_open() || conn->is_dialing || conn->is_accepted;
    any |= conn->is_half_open || (conn->is_sending() && !conn->has_ended() && opens);
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
