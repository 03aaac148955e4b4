// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring: collectives in which each rank sends only to the next rank, for long buffers. No algorithm
// can send fewer bytes. See Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations" (2009).
//
// Each chunk is divided into segments. Several segments are in flight at a time, one in each lane.
// A lane is a channel whose messages are separate from those of other lanes. A function that uses
// only one lane handles one segment of each chunk as if this segment were the whole chunk. Below, p
// is the number of ranks.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::ring {

/// Afterwards chunk r of `out` on rank r holds chunk r of the sum of `in` over all ranks. The
/// contents of the other chunks of `out` are unspecified. `in` may be the same buffer as `out`;
/// otherwise it is only read. Takes p-1 rounds, in which a rank sends (p-1)/p of the buffer in
/// total. The operation must commute, because the sum of each chunk starts at a different rank.
/// Sends and receives only on the lane of `net`. `parts` may describe one segment of each chunk
/// instead of whole chunks (see `partition::segment`).
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter_to_chunks(Channel net, Data in, Data out, partition parts, Op op) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks own(in, parts);
  const chunks chunk(out, parts);
  if (net.size() == 1) net.copy(bytes(chunk[0]), bytes(own[0]));
  for (int step = 1; step < net.size(); ++step) {
    // In the first step, this rank sends a chunk of its input. In each later step, it sends the
    // partial sum that it computed in the previous step.
    const Data partial = step == 1 ? own[ring.behind(step)] : chunk[ring.behind(step)];
    const Data own_part = own[ring.behind(step + 1)];
    const Data sum = chunk[ring.behind(step + 1)];
    co_await when_all(net.send(ring.next, bytes(partial)),
                      net.recv_reduce(ring.prev, own_part, sum, op, incoming::left));
  }
}

/// Afterwards `out` on rank r holds chunk r of the sum of `in` over all ranks. `out` may be exactly
/// this rank's chunk of `in`. Apart from that, `in` is only read. Keeps the partial sums
/// alternately in two scratch buffers. Sends and receives only on the lane of `net`.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter_segment(Channel net, Data in, Data out, partition parts, Op op) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks chunk(in, parts);
  if (net.size() == 1) net.copy(bytes(out), bytes(chunk[0]));
  scratch even = net.scratch_like(in, net.size() > 3 ? parts.longest() : 0);
  scratch odd = net.scratch_like(in, net.size() > 2 ? parts.longest() : 0);
  Data partial = chunk[ring.behind(1)];
  for (int step = 1; step < net.size(); ++step) {
    const Data own_part = chunk[ring.behind(step + 1)];
    scratch& spare = step % 2 == 0 ? even : odd;
    const Data sum = step + 1 == net.size() ? out : typed_view(in, spare.data(), own_part.size());
    co_await when_all(net.send(ring.next, bytes(partial)),
                      net.recv_reduce(ring.prev, own_part, sum, op, incoming::left));
    partial = sum;
  }
}

/// Afterwards `out` on rank r holds chunk r of the sum of `in` over all ranks. `out` may be exactly
/// this rank's chunk of `in`. Apart from that, `in` is only read. Takes p-1 rounds. In each round,
/// every rank sends one chunk to the next rank. The operation must commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const int segments = net.segments(parts.longest() * element_size(in));
  const std::size_t start = parts.offset(net.rank());
  const auto piece = [=](Channel lane, int k) {
    const partition part = parts.segment(k, segments);
    const std::size_t at = part.offset(lane.rank()) - start;
    return reduce_scatter_segment(lane, in, out.subspan(at, part.count(lane.rank())), part, op);
  };
  co_await run_in_lanes(net, net.width(), segments, piece);
}

/// Sends each chunk once around the ring, beginning at the rank that holds the chunk. Sends and
/// receives only on the lane of `net`.
template <channel Channel, buffer Data>
task<> all_gather_segment(Channel net, Data data, partition parts) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks chunk(data, parts);
  for (int step = 1; step < net.size(); ++step) {
    co_await when_all(net.send(ring.next, bytes(chunk[ring.behind(step - 1)])),
                      net.recv(ring.prev, bytes(chunk[ring.behind(step)])));
  }
}

/// Before the call, chunk r of `data` on rank r holds the data of rank r. Afterwards every rank
/// holds all chunks. Takes p-1 rounds. In each round, every rank sends one chunk to the next rank.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const int segments = net.segments(parts.longest() * element_size(data));
  const auto piece = [=](Channel lane, int k) {
    return all_gather_segment(lane, data, parts.segment(k, segments));
  };
  co_await run_in_lanes(net, net.width(), segments, piece);
}

/// Afterwards `out` on every rank holds the sum of `in` over all ranks, with the same bits on all
/// ranks. `in` may be the same buffer as `out`; otherwise it is only read. Takes 2(p-1) rounds. In
/// total, each rank sends 2(p-1)/p times the size of the buffer. No all_reduce can send fewer
/// bytes. The operation must commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce_out_of_place(Channel net, Data in, Data out, Op op) {
  const partition parts(out.size(), net.size());
  const int segments = net.segments(parts.longest() * element_size(out));
  const auto piece = [=](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    co_await reduce_scatter_to_chunks(lane, in, out, part, op);
    co_await all_gather_segment(lane, out, part);
  };
  co_await run_in_lanes(net, net.width(), segments, piece);
}

/// Afterwards `data` on every rank holds the sum of the inputs of all ranks, with the same bits on
/// all ranks. The operation must commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce(Channel net, Data data, Op op) {
  return all_reduce_out_of_place(net, data, data, op);
}

}  // namespace colls::ring
