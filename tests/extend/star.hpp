// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// star: an algorithm of the user's own, which docs/adding_an_algorithm.md explains.

#include <colls/algorithm/description.hpp>

namespace my {

/// An all_reduce in which every rank sends its vector to rank 0. Rank 0 sums the vectors in rank
/// order and sends the sum to every rank.
struct star_algorithm : colls::collective_algorithm<colls::collective::all_reduce> {
  static constexpr const char* name = "star";
  static constexpr colls::order reduction_order = colls::order::rank;

  template <colls::channel Channel>
  static colls::task<> run(Channel net, colls::any_buffer in, colls::any_buffer out,
                           colls::any_op op) {
    constexpr int hub = 0;
    if (net.rank() != hub) {
      co_await net.send(hub, bytes(in));
      co_await net.recv(hub, bytes(out));
      co_return;
    }
    net.copy(bytes(out), bytes(in));
    for (int peer = 1; peer < net.size(); ++peer) {
      co_await net.recv_reduce(peer, out, out, op, colls::incoming::right);
    }
    const auto send = [&](int peer) { return net.send(peer, bytes(out)); };
    co_await colls::each_of(1, net.size(), send);
  }

  static constexpr auto cost(const colls::loggp_model& model, const colls::algorithm_choice&) {
    return model.star_sum(model.bytes()) + model.star_out(model.bytes());
  }
};
inline constexpr star_algorithm star;

}  // namespace my
