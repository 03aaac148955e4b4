// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring: each rank sends to the next one only. Optimal in bytes, for long buffers.
//
// A chunk travels as segments, several at a time: each lane runs the same coroutine over the
// segments that it takes, as if they were the whole. Patarasuk, Yuan, "Bandwidth optimal all-reduce
// algorithms for clusters of workstations" (2009).

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::ring {

/// Afterwards rank r holds the finished chunk r in `out`; its other chunks are scratch. `in` is
/// only read, and may be `out`. Sends (p-1)/p of the buffer in p-1 rounds. The fold starts at
/// another rank for each chunk, so the operation has to commute. One lane: `parts` may be a
/// segment.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter_to_chunks(Channel net, Data in, Data out, partition parts, Op op) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks own(in, parts);
  const chunks chunk(out, parts);
  if (net.size() == 1) net.copy(bytes(chunk[0]), bytes(own[0]));
  for (int step = 1; step < net.size(); ++step) {
    // What we absorbed one step ago, at first our own; then what the previous rank gathered.
    const Data partial = step == 1 ? own[ring.back(step)] : chunk[ring.back(step)];
    const Data mine = own[ring.back(step + 1)];
    const Data sum = chunk[ring.back(step + 1)];
    co_await when_all(net.send(ring.next, bytes(partial)),
                      net.recv_reduce(ring.prev, mine, sum, op, incoming::left));
  }
}

/// The same, but `in` is only read and the finished chunk goes to `out`, which may be exactly this
/// rank's chunk of `in`: partial sums alternate between two scratches. One lane.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter_segment(Channel net, Data in, Data out, partition parts, Op op) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks chunk(in, parts);
  if (net.size() == 1) net.copy(bytes(out), bytes(chunk[0]));
  scratch even = net.scratch_like(in, net.size() > 3 ? parts.longest() : 0);
  scratch odd = net.scratch_like(in, net.size() > 2 ? parts.longest() : 0);
  Data partial = chunk[ring.back(1)];
  for (int step = 1; step < net.size(); ++step) {
    const Data mine = chunk[ring.back(step + 1)];
    scratch& spare = step % 2 == 0 ? even : odd;
    const Data sum = step + 1 == net.size() ? out : placed(in, spare.data(), mine.size());
    co_await when_all(net.send(ring.next, bytes(partial)),
                      net.recv_reduce(ring.prev, mine, sum, op, incoming::left));
    partial = sum;
  }
}

/// Afterwards rank r holds the finished chunk r in `out`; `in` is only read, and `out` may be
/// exactly this rank's chunk of it. Sends all of `in` but one chunk, in p-1 rounds. The operation
/// has to commute.
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
  co_await in_lanes(net, net.width(), segments, piece);
}

/// Each chunk goes once around, from the rank that holds it. One lane.
template <channel Channel, buffer Data>
task<> all_gather_segment(Channel net, Data data, partition parts) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks chunk(data, parts);
  for (int step = 1; step < net.size(); ++step) {
    co_await when_all(net.send(ring.next, bytes(chunk[ring.back(step - 1)])),
                      net.recv(ring.prev, bytes(chunk[ring.back(step)])));
  }
}

/// Before, rank r holds chunk r in its place in `data`; afterwards every rank holds all chunks.
/// p-1 rounds; a rank sends all chunks but that of the next rank.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const int segments = net.segments(parts.longest() * element_size(data));
  const auto piece = [=](Channel lane, int k) {
    return all_gather_segment(lane, data, parts.segment(k, segments));
  };
  co_await in_lanes(net, net.width(), segments, piece);
}

/// Afterwards every rank holds the same sum in `out`; `in` is only read, and may be `out`. 2(p-1)
/// rounds, in which a rank sends 2(p-1)/p of the buffer: no all_reduce sends less. The operation
/// has to commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce_apart(Channel net, Data in, Data out, Op op) {
  const partition parts(out.size(), net.size());
  const int segments = net.segments(parts.longest() * element_size(out));
  const auto piece = [=](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    co_await reduce_scatter_to_chunks(lane, in, out, part, op);
    co_await all_gather_segment(lane, out, part);
  };
  co_await in_lanes(net, net.width(), segments, piece);
}

/// The same in place.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> all_reduce(Channel net, Data data, Op op) {
  return all_reduce_apart(net, data, data, op);
}

}  // namespace colls::ring
