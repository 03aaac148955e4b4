// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recursive_doubling: collectives that take few rounds, for short buffers. In every round, a rank
// and its partner send each other all the data that they hold. Therefore the number of ranks whose
// data a rank holds doubles in every round. See Thakur, Rabenseifner, Gropp, "Optimization of
// collective communication operations in MPICH" (2005).
//
// Partial sums lie alternately in the caller's buffer and in a scratch buffer, because the old sum
// is still being sent to the partner while the new sum is written. Below, p is the number of ranks,
// and 2^k is the largest power of two that is not greater than p.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::recursive_doubling {

/// Afterwards `data` of every rank holds the sum of the inputs of all ranks, with the same bits on
/// all ranks. The sum is folded in rank order, so the operation need not commute. Takes k rounds,
/// in each of which a rank sends the whole buffer. If p is not a power of two, p - 2^k ranks do not
/// take part in these rounds. Each of them first sends its input to a neighbour, and receives the
/// sum from this neighbour at the end. This takes two more rounds.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  const pattern::hypercube cube(net.rank(), net.size());
  if (cube.fold_dest >= 0) {
    co_await net.send(cube.fold_dest, bytes(data));
    co_await net.recv(cube.fold_dest, bytes(data));
    co_return;
  }
  if (cube.fold_source >= 0) {
    co_await net.recv_reduce(cube.fold_source, data, data, op, incoming::left);
  }
  scratch memory = net.scratch_like(data, cube.rounds > 0 ? data.size() : 0);
  Data sum = data;
  Data spare = typed_view(data, memory.data(), data.size());
  for (int round = 0; round < cube.rounds; ++round) {
    co_await net.exchange_reduce(cube.partner(round), sum, spare, op);
    std::swap(sum, spare);
  }
  net.copy(bytes(data), bytes(sum));
  if (cube.fold_source >= 0) co_await net.send(cube.fold_source, bytes(data));
}

/// Before the call, chunk r of `data` on rank r holds the data of rank r. Afterwards every rank
/// holds all chunks. Takes k rounds. If p is a power of two, a rank sends (p-1)/p of the buffer in
/// total. Otherwise p - 2^k ranks do not take part in these rounds. Each of them first sends its
/// chunk to a neighbour, and receives the whole buffer from this neighbour at the end. This takes
/// two more rounds.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const pattern::hypercube cube(net.rank(), net.size());
  const chunks chunk(data, parts);
  if (cube.fold_dest >= 0) {
    co_await net.send(cube.fold_dest, bytes(chunk[net.rank()]));
    co_await net.recv(cube.fold_dest, bytes(data));
    co_return;
  }
  if (cube.fold_source >= 0) co_await net.recv(cube.fold_source, bytes(chunk[cube.fold_source]));
  for (int round = 0; round < cube.rounds; ++round) {
    const int partner = cube.partner(round);
    co_await when_all(net.send(partner, bytes(chunk[cube.held(round)])),
                      net.recv(partner, bytes(chunk[cube.partner_held(round)])));
  }
  if (cube.fold_source >= 0) co_await net.send(cube.fold_source, bytes(data));
}

/// Computes the sum of the inputs of all ranks from rank 0 to this rank. Before the call, `sum`
/// holds the input of this rank. May overwrite both `sum` and `spare`, and returns the buffer that
/// holds the result.
template <channel Channel, buffer Data, class Op>
task<Data> running_sum(Channel net, Data sum, Data spare, Op op) {
  const pattern::prefix line(net.rank(), net.size());
  for (int round = 0; round < line.rounds; ++round) {
    const int dest = line.dest(round);
    const int source = line.source(round);
    if (dest >= 0 && source >= 0) {
      co_await when_all(net.send(dest, bytes(sum)),
                        net.recv_reduce(source, sum, spare, op, incoming::left));
      std::swap(sum, spare);
    } else if (dest >= 0) {
      co_await net.send(dest, bytes(sum));
    } else if (source >= 0) {
      co_await net.recv_reduce(source, sum, sum, op, incoming::left);
    }
  }
  co_return sum;
}

/// Afterwards `data` on rank r holds the sum of the inputs of ranks 0 to r. The sum is folded in
/// rank order, so the operation need not commute. Takes ceil(log2 p) rounds, in each of which a
/// rank sends the whole buffer at most once. See Hillis, Steele, "Data parallel algorithms" (1986).
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  scratch memory = net.scratch_like(data, net.size() > 1 ? data.size() : 0);
  const Data spare = typed_view(data, memory.data(), data.size());
  const Data sum = co_await running_sum(net, data, spare, op);
  net.copy(bytes(data), bytes(sum));
}

/// Afterwards `data` on rank r holds the sum of the inputs of ranks 0 to r-1, folded in rank order.
/// `data` on rank 0 is unchanged. In the first round, every rank except the last sends its input to
/// the next rank. Then ranks 1 to p-1 do a scan of the inputs that they have received, in
/// ceil(log2(p-1)) further rounds.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const pattern::prefix line(net.rank(), net.size());
  const int next = line.dest(0);
  const int prev = line.source(0);
  if (prev < 0) {
    if (next >= 0) co_await net.send(next, bytes(data));
    co_return;
  }
  scratch memory = net.scratch_like(data, data.size());
  const Data lower = typed_view(data, memory.data(), data.size());
  if (next >= 0) {
    co_await when_all(net.send(next, bytes(data)), net.recv(prev, bytes(lower)));
  } else {
    co_await net.recv(prev, bytes(lower));
  }
  const Channel above_first = net.subset(1, 1, net.size() - 1, 0);
  const Data sum = co_await running_sum(above_first, lower, data, op);
  net.copy(bytes(data), bytes(sum));
}

}  // namespace colls::recursive_doubling
