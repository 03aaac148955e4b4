// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// circulant: collectives over a circulant graph, for any number of ranks p. They need the minimum
// number of rounds and send the minimum number of bytes. See Träff, "Optimal, non-pipelined
// reduce-scatter and allreduce algorithms" (2024).
//
// Block i on rank r is the chunk of rank r + i, modulo p. Most algorithms here copy the data to
// scratch memory in the order of the blocks, so that the blocks of each message are contiguous.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/rotated_partition.hpp>
#include <colls/base/pattern/circulant.hpp>

namespace colls::circulant {

/// Afterwards block 0 on rank r holds the sum of chunk r over all ranks. The contents of the other
/// blocks are then unspecified. Takes ceil(log2 p) rounds.
template <channel Channel, buffer Data, class Op>
task<> reduce_blocks(Channel net, chunks<Data, rotated_partition> block, Op op) {
  const pattern::circulant graph(net.rank(), net.size());
  for (int round = 0; round < graph.rounds; ++round) {
    const Data sum = block[graph.kept(round)];
    co_await when_all(net.send(graph.dest(round), bytes(block[graph.sent(round)])),
                      net.recv_reduce(graph.source(round), sum, sum, op, incoming::left));
  }
}

/// Before the call, every rank holds only its block 0. Afterwards every rank holds all blocks. Runs
/// the rounds of `reduce_blocks` in reverse order, and sends each message in the opposite
/// direction.
template <channel Channel, buffer Data>
task<> gather_blocks(Channel net, chunks<Data, rotated_partition> block) {
  const pattern::circulant graph(net.rank(), net.size());
  for (int round = graph.rounds; round-- > 0;) {
    co_await when_all(net.send(graph.source(round), bytes(block[graph.kept(round)])),
                      net.recv(graph.dest(round), bytes(block[graph.sent(round)])));
  }
}

/// Takes ceil(log2 p) rounds. A rank sends every chunk except its own exactly once. The operation
/// must commute, because the inputs are not summed in rank order.
struct reduce_scatter_algorithm : built_in<collective::reduce_scatter, algorithm::circulant> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, partition parts, Op op) {
    const rotated_partition order(parts, net.rank());
    scratch memory = net.scratch_like(in, in.size());
    const Data work = typed_view(in, memory.data(), in.size());
    order.rotate(net, work, in);
    const chunks block(work, order);
    co_await reduce_blocks(net, block, op);
    net.copy(bytes(out), bytes(block[0]));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    return model.copied(model.reduced(model.circulant_rounds(), n - model.chunk_bytes()), n);
  }
};
inline constexpr reduce_scatter_algorithm reduce_scatter;

/// Takes ceil(log2 p) rounds, in which a rank sends p-1 chunks in total.
struct all_gather_algorithm : built_in<collective::all_gather, algorithm::circulant> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    const rotated_partition order(parts, net.rank());
    scratch memory = net.scratch_like(in, out.size());
    const Data work = typed_view(out, memory.data(), out.size());
    const chunks block(work, order);
    net.copy(bytes(block[0]), bytes(in));
    co_await gather_blocks(net, block);
    order.unrotate(net, out, work);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.copied(model.circulant_rounds(), model.bytes());
  }
};
inline constexpr all_gather_algorithm all_gather;

/// Takes 2 ceil(log2 p) rounds, in which a rank sends 2(p-1)/p times the size of the buffer in
/// total. No all_reduce that sends as few bytes can take fewer rounds. The operation must commute.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::circulant> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const rotated_partition order(partition(in.size(), net.size()), net.rank());
    scratch memory = net.scratch_like(in, in.size());
    const Data work = typed_view(in, memory.data(), in.size());
    order.rotate(net, work, in);
    const chunks block(work, order);
    co_await reduce_blocks(net, block, op);
    co_await gather_blocks(net, block);
    order.unrotate(net, out, work);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    return model.copied(
        model.reduced(model.circulant_rounds() + model.circulant_rounds(), n - model.chunk_bytes()),
        2 * n);
  }
};
inline constexpr all_reduce_algorithm all_reduce;

/// The buffer is cut into s segments, and the broadcast takes s - 1 + ceil(log2 p) rounds. In a
/// round, a rank sends at most one segment and receives at most one. No broadcast with this limit
/// can take fewer rounds. All ranks together send (p-1)s messages.
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::circulant> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    const int segments = net.segments(bytes(data).size);
    const chunks segment(data, partition(data.size(), segments));
    const pattern::circulant_broadcast graph(net.rank(), net.size(), root, segments);
    for (int round = 0; round < graph.rounds; ++round) {
      const int sent = graph.sent(round);
      const int received = graph.received(round);
      if (sent >= 0 && received >= 0) {
        co_await when_all(net.send(graph.dest(round), bytes(segment[sent])),
                          net.recv(graph.source(round), bytes(segment[received])));
      } else if (sent >= 0) {
        co_await net.send(graph.dest(round), bytes(segment[sent]));
      } else if (received >= 0) {
        co_await net.recv(graph.source(round), bytes(segment[received]));
      }
    }
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    const std::uint64_t n = model.bytes();
    const std::uint64_t others = model.number(model.ranks() - 1);
    const std::uint64_t s = model.pieces(n, choice.segment);
    const std::uint64_t rounds = s - 1 + model.number(pattern::doubling_rounds(model.ranks()));
    return loggp::phase{others * s, others * n,
                        rounds * model.shift_hop((n + s - 1) / s, model.per_host())};
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.bytes(); }
};
inline constexpr broadcast_algorithm broadcast;

}  // namespace colls::circulant
