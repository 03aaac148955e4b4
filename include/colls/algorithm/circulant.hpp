// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// circulant: the fewest rounds and the fewest bytes at once, for any number of ranks. Träff,
// "Optimal, non-pipelined reduce-scatter and allreduce algorithms" (2024).
// Block i of a rank is that of the rank i ahead. Sums are made in scratch in this order, where what
// a message carries lies in one piece.

#include <colls/algorithm/rotated_partition.hpp>
#include <colls/base/pattern/circulant.hpp>

namespace colls::circulant {

/// Afterwards block 0 is finished, the others are scratch. ceil(log2 p) rounds.
template <channel Channel, buffer Data, class Op>
task<> sum_blocks(Channel net, chunks<Data, rotated> block, Op op) {
  const pattern::circulant graph(net.rank(), net.size());
  for (int round = 0; round < graph.rounds; ++round) {
    const Data sum = block[graph.kept(round)];
    co_await when_all(net.send(graph.to(round), bytes(block[graph.given(round)])),
                      net.recv_reduce(graph.from(round), sum, sum, op, incoming::left));
  }
}

/// Before, block 0 is there; afterwards all are. The rounds of sum_blocks in reverse.
template <channel Channel, buffer Data>
task<> spread_blocks(Channel net, chunks<Data, rotated> block) {
  const pattern::circulant graph(net.rank(), net.size());
  for (int round = graph.rounds; round-- > 0;) {
    co_await when_all(net.send(graph.from(round), bytes(block[graph.kept(round)])),
                      net.recv(graph.to(round), bytes(block[graph.given(round)])));
  }
}

/// Afterwards rank r holds the finished chunk r in `out`; `in` is only read, and `out` may be
/// exactly this rank's chunk of it. ceil(log2 p) rounds, in which a rank sends every chunk but its
/// own once. Sums are not in rank order: the operation has to commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const rotated order(parts, net.rank());
  scratch memory = net.scratch_like(in, in.size());
  const Data work = placed(in, memory.data(), in.size());
  order.turn(net, work, in);
  const chunks block(work, order);
  co_await sum_blocks(net, block, op);
  net.copy(bytes(out), bytes(block[0]));
}

/// Before, rank r holds chunk r in its place in `data`; afterwards every rank holds all chunks.
/// ceil(log2 p) rounds, in which a rank sends p-1 chunks.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const rotated order(parts, net.rank());
  scratch memory = net.scratch_like(data, data.size());
  const Data work = placed(data, memory.data(), data.size());
  const chunks block(work, order);
  net.copy(bytes(block[0]), bytes(chunks(data, parts)[net.rank()]));
  co_await spread_blocks(net, block);
  order.turn_back(net, data, work);
}

/// Afterwards every rank holds the same sum in `data`. 2 ceil(log2 p) rounds, in which a rank sends
/// 2(p-1)/p of the buffer: no all_reduce takes fewer rounds for so few bytes. The operation has to
/// commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce(Channel net, Data data, Op op) {
  const rotated order(partition(data.size(), net.size()), net.rank());
  scratch memory = net.scratch_like(data, data.size());
  const Data work = placed(data, memory.data(), data.size());
  order.turn(net, work, data);
  const chunks block(work, order);
  co_await sum_blocks(net, block, op);
  co_await spread_blocks(net, block);
  order.turn_back(net, data, work);
}

/// Afterwards `data` of every rank holds what `data` of the root held. The buffer goes as s
/// segments in s - 1 + ceil(log2 p) rounds, in which a rank sends at most one and receives at most
/// one: no broadcast takes fewer. (p-1)s messages.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  const int segments = net.segments(bytes(data).size);
  const chunks segment(data, partition(data.size(), segments));
  const pattern::circulant_broadcast graph(net.rank(), net.size(), root, segments);
  for (int round = 0; round < graph.rounds; ++round) {
    const int given = graph.given(round);
    const int taken = graph.taken(round);
    if (given >= 0 && taken >= 0) {
      co_await when_all(net.send(graph.to(round), bytes(segment[given])),
                        net.recv(graph.from(round), bytes(segment[taken])));
    } else if (given >= 0) {
      co_await net.send(graph.to(round), bytes(segment[given]));
    } else if (taken >= 0) {
      co_await net.recv(graph.from(round), bytes(segment[taken]));
    }
  }
}

}  // namespace colls::circulant
