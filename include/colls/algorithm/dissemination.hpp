// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// dissemination: a barrier with the fewest rounds. The number of ranks that a rank has heard from,
// directly or indirectly, grows by a factor of k in every round, where k is the channel's radix.

#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::dissemination {

/// Does not complete on any rank before all ranks have called `barrier`. Takes ceil(log_k p)
/// rounds, where p is the number of ranks. In each round, every rank sends at most k-1 empty
/// messages. See Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization" (1988).
template <channel Channel>
task<> barrier(Channel net) {
  const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
  const mutable_bytes token;
  for (int step = 1; step < net.size(); step = circle.next_step(step)) {
    const auto send = [&](int j) { return net.send(circle.ahead(j * step), token); };
    const auto recv = [&](int j) { return net.recv(circle.behind(j * step), token); };
    const int last = circle.peers(step) + 1;
    co_await when_all(each_of(1, last, send), each_of(1, last, recv));
  }
}

}  // namespace colls::dissemination
