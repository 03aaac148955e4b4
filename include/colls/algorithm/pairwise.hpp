// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pairwise: an all_to_all and a reduce_scatter that take p-1 rounds. In each round, a rank sends to
// one peer and receives from one peer. See Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH" (2005). Below, p is the number of ranks.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern.hpp>

namespace colls::pairwise {

/// Takes p-1 rounds. In each round, a rank sends one chunk directly to the rank that needs it, and
/// receives one chunk from another rank.
struct all_to_all_algorithm : built_in<collective::all_to_all, algorithm::pairwise> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
    const pattern::ring ring(net.rank(), net.size());
    const chunks outgoing(in, in_parts);
    const chunks arriving(out, out_parts);
    net.copy(bytes(arriving[ring.rank]), bytes(outgoing[ring.rank]));
    for (int step = 1; step < net.size(); ++step) {
      const int dest = ring.ahead(step);
      const int source = ring.behind(step);
      co_await when_all(net.send(dest, bytes(outgoing[dest])),
                        net.recv(source, bytes(arriving[source])));
    }
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.pairwise_rounds(model.chunk_bytes());
  }
};
inline constexpr all_to_all_algorithm all_to_all;

/// The sum is folded in rank order, so the operation need not commute. Takes p-1 rounds. In each
/// round, a rank sends one chunk of its input directly to the rank that needs it, and receives one
/// chunk from another rank.
struct reduce_scatter_algorithm : built_in<collective::reduce_scatter, algorithm::pairwise> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, partition parts, Op op) {
    const pattern::ring ring(net.rank(), net.size());
    const chunks outgoing(in, parts);
    const Data own = outgoing[ring.rank];
    const bool is_last = ring.rank + 1 == ring.size;
    scratch memory = net.scratch_like(own, is_last ? 0 : own.size());
    const Data upper = typed_view(own, memory.data(), own.size());
    Data lower = own;
    // This rank receives the chunks of the lower ranks first, in descending order of rank. Then it
    // receives the chunks of the higher ranks, also in descending order. `lower` is the sum of this
    // rank's own chunk and the chunks of the lower ranks. `upper` is the sum of the chunks of the
    // higher ranks.
    for (int step = 1; step < ring.size; ++step) {
      const int dest = ring.ahead(step);
      const int source = ring.behind(step);
      const auto send = [&] { return net.send(dest, bytes(outgoing[dest])); };
      if (source == ring.size - 1) {
        co_await when_all(send(), net.recv(source, bytes(upper)));
      } else if (source > ring.rank) {
        co_await when_all(send(), net.recv_reduce(source, upper, upper, op, incoming::left));
      } else {
        co_await when_all(send(), net.recv_reduce(source, lower, out, op, incoming::left));
        lower = out;
      }
    }
    if (is_last) {
      net.copy(bytes(out), bytes(lower));
    } else {
      net.reduce(out, lower, upper, op);
    }
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.reduced(model.pairwise_rounds(model.chunk_bytes()),
                         model.bytes() - model.chunk_bytes());
  }
};
inline constexpr reduce_scatter_algorithm reduce_scatter;

}  // namespace colls::pairwise
