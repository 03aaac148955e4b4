// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// circulant: collectives over a circulant graph, which need both the fewest rounds and the fewest
// bytes for any number of ranks p. Träff, "Optimal, non-pipelined reduce-scatter and allreduce
// algorithms" (2024).
//
// Block i of a rank belongs to the rank that is i ranks ahead, modulo p. The algorithms work on a
// copy of the data in this order in scratch memory, because the blocks of one message are then
// contiguous.

#include <colls/algorithm/rotated_partition.hpp>
#include <colls/base/pattern/circulant.hpp>

namespace colls::circulant {

/// Afterwards block 0 holds its final sum, and the contents of the other blocks are unspecified.
/// Takes ceil(log2 p) rounds.
template <channel Channel, buffer Data, class Op>
task<> reduce_blocks(Channel net, chunks<Data, rotated_partition> block, Op op) {
  const pattern::circulant graph(net.rank(), net.size());
  for (int round = 0; round < graph.rounds; ++round) {
    const Data sum = block[graph.kept(round)];
    co_await when_all(net.send(graph.dest(round), bytes(block[graph.sent(round)])),
                      net.recv_reduce(graph.source(round), sum, sum, op, incoming::left));
  }
}

/// Before the call, a rank holds block 0. Afterwards it holds all blocks. Runs the rounds of
/// `reduce_blocks` in reverse order.
template <channel Channel, buffer Data>
task<> gather_blocks(Channel net, chunks<Data, rotated_partition> block) {
  const pattern::circulant graph(net.rank(), net.size());
  for (int round = graph.rounds; round-- > 0;) {
    co_await when_all(net.send(graph.source(round), bytes(block[graph.kept(round)])),
                      net.recv(graph.dest(round), bytes(block[graph.sent(round)])));
  }
}

/// Afterwards `out` on rank r holds chunk r of the sum over all ranks. `in` is only read, and `out`
/// may be exactly this rank's chunk of `in`. Takes ceil(log2 p) rounds, in which a rank sends every
/// chunk except its own once. The operation must commute, because sums are not in rank order.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const rotated_partition order(parts, net.rank());
  scratch memory = net.scratch_like(in, in.size());
  const Data work = typed_view(in, memory.data(), in.size());
  order.rotate(net, work, in);
  const chunks block(work, order);
  co_await reduce_blocks(net, block, op);
  net.copy(bytes(out), bytes(block[0]));
}

/// Before the call, rank r holds chunk r at its position in `data`. Afterwards every rank holds all
/// chunks. Takes ceil(log2 p) rounds, in which a rank sends p-1 chunks in total.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const rotated_partition order(parts, net.rank());
  scratch memory = net.scratch_like(data, data.size());
  const Data work = typed_view(data, memory.data(), data.size());
  const chunks block(work, order);
  net.copy(bytes(block[0]), bytes(chunks(data, parts)[net.rank()]));
  co_await gather_blocks(net, block);
  order.unrotate(net, data, work);
}

/// Afterwards every rank holds the same sum in `data`. Takes 2 ceil(log2 p) rounds, in which a rank
/// sends 2(p-1)/p of the buffer in total. No all_reduce that sends so few bytes takes fewer rounds.
/// The operation must commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce(Channel net, Data data, Op op) {
  const rotated_partition order(partition(data.size(), net.size()), net.rank());
  scratch memory = net.scratch_like(data, data.size());
  const Data work = typed_view(data, memory.data(), data.size());
  order.rotate(net, work, data);
  const chunks block(work, order);
  co_await reduce_blocks(net, block, op);
  co_await gather_blocks(net, block);
  order.unrotate(net, data, work);
}

/// Afterwards `data` of every rank holds what `data` of the root held. The buffer is cut into s
/// segments, which take s - 1 + ceil(log2 p) rounds. In a round, a rank sends at most one segment
/// and receives at most one. No such broadcast takes fewer rounds. All ranks together send (p-1)s
/// messages.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
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

}  // namespace colls::circulant
