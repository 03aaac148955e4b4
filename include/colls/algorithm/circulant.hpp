// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// circulant: collectives over a circulant graph, for any number of ranks p. They need the minimum
// number of rounds and send the minimum number of bytes. See Träff, "Optimal, non-pipelined
// reduce-scatter and allreduce algorithms" (2024).
//
// Block i on rank r is the chunk of rank r + i, modulo p. Most algorithms here copy the data to
// scratch memory in the order of the blocks, so that the blocks of each message are contiguous.

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

/// Afterwards `out` on rank r holds chunk r of the sum of `in` over all ranks. `out` may be exactly
/// this rank's chunk of `in`. Apart from that, `in` is only read. Takes ceil(log2 p) rounds. A rank
/// sends every chunk except its own exactly once. The operation must commute, because the inputs
/// are not summed in rank order.
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

/// Before the call, chunk r of `data` on rank r holds the data of rank r. Afterwards every rank
/// holds all chunks. Takes ceil(log2 p) rounds, in which a rank sends p-1 chunks in total.
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

/// Afterwards `data` of every rank holds the sum of the inputs of all ranks, with the same bits on
/// all ranks. Takes 2 ceil(log2 p) rounds, in which a rank sends 2(p-1)/p times the size of the
/// buffer in total. No all_reduce that sends as few bytes can take fewer rounds. The operation must
/// commute.
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
/// segments, and the broadcast takes s - 1 + ceil(log2 p) rounds. In a round, a rank sends at most
/// one segment and receives at most one. No broadcast with this limit can take fewer rounds. All
/// ranks together send (p-1)s messages.
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
