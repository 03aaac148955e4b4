// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recursive_doubling: partners exchange all they have; what a rank knows doubles in every round.
// Few rounds, for short buffers. Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH" (2005).
//
// Sums alternate between the caller's buffer and one scratch, because the message to the partner
// still reads the old sum while the new one is written.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::recursive_doubling {

/// Afterwards every rank holds the same sum in `data`, folded in rank order, so the operation need
/// not commute. log2 p rounds of the whole buffer; when p is no power of two, p - 2^k ranks give
/// their part to a neighbour first and get the sum from it: two more rounds.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  const pattern::hypercube cube(net.rank(), net.size());
  if (cube.gives_to >= 0) {
    co_await net.send(cube.gives_to, bytes(data));
    co_await net.recv(cube.gives_to, bytes(data));
    co_return;
  }
  if (cube.takes_from >= 0) {
    co_await net.recv_reduce(cube.takes_from, data, data, op, incoming::left);
  }
  scratch memory = net.scratch_like(data, cube.rounds > 0 ? data.size() : 0);
  Data sum = data;
  Data spare = placed(data, memory.data(), data.size());
  for (int round = 0; round < cube.rounds; ++round) {
    co_await net.exchange_reduce(cube.partner(round), sum, spare, op);
    std::swap(sum, spare);
  }
  net.copy(bytes(data), bytes(sum));
  if (cube.takes_from >= 0) co_await net.send(cube.takes_from, bytes(data));
}

/// Before, rank r holds chunk r in its place in `data`; afterwards every rank holds all chunks.
/// log2 p rounds, in which a rank sends (p-1)/p of the buffer; when p is no power of two there are
/// two more, of one chunk and of the whole buffer.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const pattern::hypercube cube(net.rank(), net.size());
  const chunks chunk(data, parts);
  if (cube.gives_to >= 0) {
    co_await net.send(cube.gives_to, bytes(chunk[net.rank()]));
    co_await net.recv(cube.gives_to, bytes(data));
    co_return;
  }
  if (cube.takes_from >= 0) co_await net.recv(cube.takes_from, bytes(chunk[cube.takes_from]));
  for (int round = 0; round < cube.rounds; ++round) {
    const int partner = cube.partner(round);
    co_await when_all(net.send(partner, bytes(chunk[cube.held(round)])),
                      net.recv(partner, bytes(chunk[cube.partner_held(round)])));
  }
  if (cube.takes_from >= 0) co_await net.send(cube.takes_from, bytes(data));
}

/// Which of the two buffers holds, afterwards, the sum over the ranks up to this one; before, `sum`
/// holds this rank's part.
template <channel Channel, buffer Data, class Op>
task<Data> running_sum(Channel net, Data sum, Data spare, Op op) {
  const pattern::prefix line(net.rank(), net.size());
  for (int round = 0; round < line.rounds; ++round) {
    const int to = line.to(round);
    const int from = line.from(round);
    if (to >= 0 && from >= 0) {
      co_await when_all(net.send(to, bytes(sum)),
                        net.recv_reduce(from, sum, spare, op, incoming::left));
      std::swap(sum, spare);
    } else if (to >= 0) {
      co_await net.send(to, bytes(sum));
    } else if (from >= 0) {
      co_await net.recv_reduce(from, sum, sum, op, incoming::left);
    }
  }
  co_return sum;
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r, folded in rank order, so the
/// operation need not commute. ceil(log2 p) rounds, in which a rank sends the whole buffer at most
/// once. Hillis, Steele, "Data parallel algorithms" (1986).
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  scratch memory = net.scratch_like(data, net.size() > 1 ? data.size() : 0);
  const Data spare = placed(data, memory.data(), data.size());
  const Data sum = co_await running_sum(net, data, spare, op);
  net.copy(bytes(data), bytes(sum));
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r-1, folded in rank order; that of
/// rank 0 stays as it was. Every part moves one rank up, then ranks 1 to p-1 make a scan:
/// 1 + ceil(log2(p-1)) rounds.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const pattern::prefix line(net.rank(), net.size());
  const int next = line.to(0);
  const int prev = line.from(0);
  if (prev < 0) {
    if (next >= 0) co_await net.send(next, bytes(data));
    co_return;
  }
  scratch memory = net.scratch_like(data, data.size());
  const Data lower = placed(data, memory.data(), data.size());
  if (next >= 0) {
    co_await when_all(net.send(next, bytes(data)), net.recv(prev, bytes(lower)));
  } else {
    co_await net.recv(prev, bytes(lower));
  }
  const Channel above_first = net.within(1, 1, net.size() - 1, 0);
  const Data sum = co_await running_sum(above_first, lower, data, op);
  net.copy(bytes(data), bytes(sum));
}

}  // namespace colls::recursive_doubling
