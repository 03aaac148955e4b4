// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recursive_halving: partners exchange halves of what they still sum up, so that few rounds move
// few bytes. Rabenseifner, "Optimization of collective reduction operations" (2004).

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::recursive_halving {

/// Afterwards rank r holds the finished chunk r in `out`; `in` is only read, and `out` may be
/// exactly this rank's chunk of it. log2 p rounds, in which a rank sends (p-1)/p of the buffer;
/// when p is no power of two, p - 2^k ranks give their whole buffer to a neighbour first and get
/// their chunk from it. Distant ranks are summed before close ones, so the operation has to
/// commute.
template <channel Channel, buffer Data, class Op>
  requires commutative_for<Op, element_t<Data>>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const pattern::hypercube cube(net.rank(), net.size());
  if (cube.gives_to >= 0) {
    co_await net.send(cube.gives_to, bytes(in));
    co_await net.recv(cube.gives_to, bytes(out));
    co_return;
  }
  chunks sum(in, parts);
  if (net.size() == 1) net.copy(bytes(out), bytes(in));
  // Sums lie here from the first message on, the last one in `out` if it is of one chunk.
  const bool takes = cube.takes_from >= 0;
  const pattern::rank_range summed =
      cube.held(takes || cube.rounds < 1 ? cube.rounds : cube.rounds - 1);
  const std::size_t room = sum[summed].size();
  scratch memory = net.scratch_like(in, room);
  const chunks work(placed(in, memory.data(), room), parts, summed.first);
  if (takes) {
    co_await net.recv_reduce(cube.takes_from, in, work[summed], op, incoming::left);
    sum = work;
  }
  for (int round = cube.rounds; round-- > 0;) {
    const pattern::rank_range keep = cube.held(round);
    const pattern::rank_range give = cube.partner_held(round);
    const Data kept = keep.size() == 1 ? out : work[keep];
    const int partner = cube.partner(round);
    co_await when_all(net.send(partner, bytes(sum[give])),
                      net.recv_reduce(partner, sum[keep], kept, op, incoming::left));
    sum = work;
  }
  if (!takes) co_return;
  co_await net.send(cube.takes_from, bytes(sum[cube.takes_from]));
  net.copy(bytes(out), bytes(sum[net.rank()]));
}

/// Afterwards every rank holds the same sum in `data`, folded in rank order, so the operation need
/// not commute: a reduce_scatter that begins between neighbours, and its way back. 2 log2 p rounds,
/// in which a rank sends 2(p-1)/p of the buffer; when p is no power of two, p - 2^k ranks give
/// their part to a neighbour first and get the sum from it.
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
  const chunks chunk(data, partition(data.size(), 1 << cube.rounds));
  for (int round = 0; round < cube.rounds; ++round) {
    const int partner = cube.partner(round);
    const Data kept = chunk[cube.kept(round)];
    const incoming side = partner < net.rank() ? incoming::left : incoming::right;
    co_await when_all(net.send(partner, bytes(chunk[cube.given(round)])),
                      net.recv_reduce(partner, kept, kept, op, side));
  }
  for (int round = cube.rounds; round-- > 0;) {
    const int partner = cube.partner(round);
    co_await when_all(net.send(partner, bytes(chunk[cube.kept(round)])),
                      net.recv(partner, bytes(chunk[cube.given(round)])));
  }
  if (cube.takes_from >= 0) co_await net.send(cube.takes_from, bytes(data));
}

}  // namespace colls::recursive_halving
