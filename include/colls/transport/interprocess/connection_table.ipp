// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How all links end: the second half of connection_table.hpp.

#include <colls/base/compiler.hpp>
#include <colls/transport/interprocess/connection_table.hpp>

namespace colls::tcp {

COLLS_ONCE void links::open_to_self(link& out, detail::descriptor first, detail::descriptor other) {
  auto made = std::make_unique<link>(engine_, owner_, out.peer());
  link& in = *all_.insert_or_assign(receives_from_self, std::move(made)).first->second;
  in.open(std::move(other), nullptr, checks_);
  out.open(std::move(first), nullptr, checks_);
}

COLLS_ONCE void links::open(link& which, detail::descriptor socket,
                            std::unique_ptr<shm::ring> ring) {
  std::vector<link*>& those = ring != nullptr ? rings_ : sockets_;
  those.push_back(&which);
  hear_all();
  try {
    which.open(std::move(socket), std::move(ring), checks_);
  } catch (...) {
    those.pop_back();
    throw;
  }
}

COLLS_ONCE bool links::unwritten() {
  bool any = false;
  for (auto& [peer, link] : all_) {
    if (link->is_open()) link->flush();
    const bool opens = link->is_open() || link->dialing || link->promised;
    any |= link->half_open || (!link->idle() && !link->ended() && opens);
  }
  return any;
}

COLLS_ONCE void links::say_goodbye() {
  for (auto& [peer, link] : all_) {
    if (!link->is_open()) continue;
    header frame;
    frame.kind = kind::goodbye;
    link->control(frame);
    link->flush();
  }
}

COLLS_ONCE void links::shut_writing() {
  for (auto& [peer, link] : all_) {
    if (link->is_open()) link->shut_writing();
  }
}

}  // namespace colls::tcp
