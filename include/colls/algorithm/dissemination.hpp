// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// dissemination: a barrier with the fewest rounds. The number of ranks that a rank has heard from,
// directly or indirectly, grows by a factor of k in every round, where k is the channel's radix.

#include <colls/algorithm/description.hpp>
#include <colls/base/pattern.hpp>

namespace colls::dissemination {

/// Takes ceil(log_k p) rounds, where p is the number of ranks. In each round, every rank sends at
/// most k-1 empty messages. See Hensgen, Finkel, Manber, "Two algorithms for barrier
/// synchronization" (1988).
struct barrier_algorithm : built_in<collective::barrier, algorithm::dissemination> {
  static constexpr bool has_radix = true;

  template <channel Channel>
  static task<> run(Channel net) {
    const pattern::dissemination circle{net.rank(), net.size(), net.radix()};
    const mutable_bytes token;
    for (int step = 1; step < net.size(); step = circle.next_step(step)) {
      const auto send = [&](int j) { return net.send(circle.ahead(j * step), token); };
      const auto recv = [&](int j) { return net.recv(circle.behind(j * step), token); };
      const int last = circle.peers(step) + 1;
      co_await when_all(each_of(1, last, send), each_of(1, last, recv));
    }
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.dissemination_rounds(choice.radix, [](int) { return std::uint64_t{0}; });
  }
};
inline constexpr barrier_algorithm barrier;

}  // namespace colls::dissemination
