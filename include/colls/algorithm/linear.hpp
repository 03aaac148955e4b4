// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// linear: the obvious version of every collective. Ranks talk to each other directly and sums are
// folded in rank order, ((x0 + x1) + x2) + ..., so operations need not commute: the tests' oracle.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::linear {

/// `make(peer)` for every other rank, all at once.
template <channel Channel, class Make>
auto with_all_others(const Channel& net, const Make& make) {
  return each_of(0, net.size() - 1, [&](int i) { return make(i < net.rank() ? i : i + 1); });
}

/// A copy, made once the messages before it in a `when_all` are under way.
template <channel Channel>
task<> meanwhile_copy(Channel net, mutable_bytes to, const_bytes from) {
  net.copy(to, from);
  co_return;
}

/// Leaves in `out` the sum of `own` and of what every other rank sends, folded in rank order; `own`
/// is only read, and may be `out`.
template <channel Channel, buffer Data, class Op>
task<> sum_in_rank_order(Channel net, Data own, Data out, Op op) {
  scratch memory = net.scratch_like(own, net.rank() > 0 ? own.size() : 0);
  Data sum = own;
  if (net.rank() > 0) {
    const Data lower = placed(own, memory.data(), own.size());
    co_await net.recv(0, bytes(lower));
    for (int peer = 1; peer < net.rank(); ++peer) {
      co_await net.recv_reduce(peer, lower, lower, op, incoming::right);
    }
    net.reduce(out, lower, own, op);
    sum = out;
  }
  for (int peer = net.rank() + 1; peer < net.size(); ++peer) {
    co_await net.recv_reduce(peer, sum, out, op, incoming::right);
    sum = out;
  }
  net.copy(bytes(out), bytes(sum));
}

/// Ends on no rank before all ranks have called it: all tell rank 0, rank 0 tells all. 2(p-1) empty
/// messages.
template <channel Channel>
task<> barrier(Channel net) {
  const mutable_bytes token;
  if (net.rank() != 0) {
    co_await net.send(0, token);
    co_await net.recv(0, token);
    co_return;
  }
  const auto hear = [&](int peer) { return net.recv(peer, token); };
  const auto tell = [&](int peer) { return net.send(peer, token); };
  co_await with_all_others(net, hear);
  co_await with_all_others(net, tell);
}

/// Afterwards `data` of every rank holds what `data` of the root held. The root sends p-1 copies.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  if (net.rank() != root) {
    co_await net.recv(root, bytes(data));
    co_return;
  }
  const auto send = [&](int peer) { return net.send(peer, bytes(data)); };
  co_await with_all_others(net, send);
}

/// Afterwards `out` of the root holds the sum; elsewhere `out` is not looked at. `in` is only read;
/// on the root it may be `out`. p-1 messages, which the root takes in one after another.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  if (net.rank() == root) {
    co_await sum_in_rank_order(net, in, out, op);
  } else {
    co_await net.send(root, bytes(in));
  }
}

/// Afterwards every rank holds the same sum in `data`: a reduce to rank 0 and a broadcast.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  co_await reduce(net, data, data, 0, op);
  co_await broadcast(net, data, 0);
}

/// Afterwards rank r holds the finished chunk r in `out`; `in` is only read, and `out` may be
/// exactly this rank's chunk of it. Every rank sends every other one its chunk: p(p-1) messages.
template <channel Channel, buffer Data, class Op>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const chunks chunk(in, parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await when_all(with_all_others(net, send),
                    net.beside(sum_in_rank_order(net, chunk[net.rank()], out, op)));
}

/// Before, rank r holds chunk r in its place in `data`; afterwards every rank holds all chunks.
/// p(p-1) messages.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const chunks chunk(data, parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[net.rank()])); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  co_await when_all(with_all_others(net, send), with_all_others(net, recv));
}

/// Afterwards chunk r of `all` on the root holds `mine` of rank r; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages.
template <channel Channel, buffer Data>
task<> gather(Channel net, Data mine, Data all, partition parts, int root) {
  if (net.rank() != root) {
    co_await net.send(root, bytes(mine));
    co_return;
  }
  const chunks chunk(all, parts);
  const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  net.copy(bytes(chunk[root]), bytes(mine));
  co_await with_all_others(net, recv);
}

/// Afterwards `mine` on rank r holds chunk r of `all` on the root; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages.
template <channel Channel, buffer Data>
task<> scatter(Channel net, Data all, Data mine, partition parts, int root) {
  if (net.rank() != root) {
    co_await net.recv(root, bytes(mine));
    co_return;
  }
  const chunks chunk(all, parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await when_all(with_all_others(net, send),
                    meanwhile_copy(net, bytes(mine), bytes(chunk[root])));
}

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. Chunk i of this rank's `in_parts` is as long as this rank's
/// chunk of the `out_parts` on rank i. p(p-1) messages at once.
template <channel Channel, buffer Data>
task<> all_to_all(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(outgoing[peer])); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(arriving[peer])); };
  const mutable_bytes kept = bytes(arriving[net.rank()]);
  co_await when_all(with_all_others(net, send), with_all_others(net, recv),
                    meanwhile_copy(net, kept, bytes(outgoing[net.rank()])));
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r: a chain of p-1 messages.
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  const int next = pattern::prefix(net.rank(), net.size()).to(0);
  const int prev = pattern::prefix(net.rank(), net.size()).from(0);
  if (prev >= 0) co_await net.recv_reduce(prev, data, data, op, incoming::left);
  if (next >= 0) co_await net.send(next, bytes(data));
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r-1; that of rank 0 stays as it was. A
/// chain of p-1 messages.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const int next = pattern::prefix(net.rank(), net.size()).to(0);
  const int prev = pattern::prefix(net.rank(), net.size()).from(0);
  scratch memory = net.scratch_like(data, prev >= 0 ? data.size() : 0);
  const Data lower = placed(data, memory.data(), data.size());
  if (prev >= 0) co_await net.recv(prev, bytes(lower));
  if (next >= 0) {
    if (prev >= 0) net.reduce(data, lower, data, op);
    co_await net.send(next, bytes(data));
  }
  if (prev >= 0) net.copy(bytes(data), bytes(lower));
}

}  // namespace colls::linear
