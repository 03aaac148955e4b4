// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// dissemination: the barrier in which news doubles in every round.

#include <colls/channel.hpp>
#include <colls/pattern.hpp>

namespace colls::dissemination {

/// Ends on no rank before all ranks have called it. ceil(log2 p) rounds; in each of them every rank
/// sends one empty message. Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization"
/// (1988).
template <channel Channel>
task<> barrier(Channel net) {
  const pattern::dissemination circle(net.rank(), net.size());
  const mutable_bytes token;
  for (int round = 0; round < circle.rounds; ++round) {
    co_await when_all(net.send(circle.to(round), token), net.recv(circle.from(round), token));
  }
}

}  // namespace colls::dissemination
