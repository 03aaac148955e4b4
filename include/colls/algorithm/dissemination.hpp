// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// dissemination: the barrier in which news multiplies in every round.

#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::dissemination {

/// Ends on no rank before all ranks have called it. ceil(log_k p) rounds, k being the radix; in
/// each of them every rank sends at most k-1 empty messages. Hensgen, Finkel, Manber, "Two
/// algorithms for barrier synchronization" (1988).
template <channel Channel>
task<> barrier(Channel net) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  const mutable_bytes token;
  for (int step = 1; step < net.size(); step = circle.after(step)) {
    const auto tell = [&](int j) { return net.send(circle.ahead(j * step), token); };
    const auto hear = [&](int j) { return net.recv(circle.behind(j * step), token); };
    const int last = circle.peers(step) + 1;
    co_await when_all(each_of(1, last, tell), each_of(1, last, hear));
  }
}

}  // namespace colls::dissemination
