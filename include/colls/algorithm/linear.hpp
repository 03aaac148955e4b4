// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// linear: the simplest algorithm for every collective. Ranks send directly to each other. Sums are
// folded in rank order, ((x0 + x1) + x2) + ..., so operations need not commute. Below, p is the
// number of ranks.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls::linear {

/// Returns an operation that concurrently runs one operation for each rank except this rank.
/// `make(peer)` returns the operation for rank `peer`.
template <channel Channel, class Make>
auto for_all_peers(const Channel& net, const Make& make) {
  return each_of(0, net.size() - 1, [&](int i) { return make(i < net.rank() ? i : i + 1); });
}

/// Copies `source` to `dest`. This is a coroutine, so that it can be an argument of `when_all`. If
/// it is the last argument, `when_all` starts all other operations before the copy.
template <channel Channel>
task<> copy_task(Channel net, mutable_bytes dest, const_bytes source) {
  net.copy(dest, source);
  co_return;
}

/// Receives a message from every other rank. Afterwards `out` holds the sum of `own` and these
/// messages, folded in rank order. `own` may be the same buffer as `out`; otherwise it is only
/// read.
template <channel Channel, buffer Data, class Op>
task<> sum_in_rank_order(Channel net, Data own, Data out, Op op) {
  scratch memory = net.scratch_like(own, net.rank() > 0 ? own.size() : 0);
  Data sum = own;
  if (net.rank() > 0) {
    const Data lower = typed_view(own, memory.data(), own.size());
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

/// Does not complete on any rank before all ranks have called `barrier`. Rank 0 receives an empty
/// message from each other rank, and then sends an empty message to each other rank.
template <channel Channel>
task<> barrier(Channel net) {
  const mutable_bytes token;
  if (net.rank() != 0) {
    co_await net.send(0, token);
    co_await net.recv(0, token);
    co_return;
  }
  const auto recv = [&](int peer) { return net.recv(peer, token); };
  const auto send = [&](int peer) { return net.send(peer, token); };
  co_await for_all_peers(net, recv);
  co_await for_all_peers(net, send);
}

/// Afterwards `data` of every rank holds what `data` of the root held. The root sends p-1 messages,
/// each with the whole buffer.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  if (net.rank() != root) {
    co_await net.recv(root, bytes(data));
    co_return;
  }
  const auto send = [&](int peer) { return net.send(peer, bytes(data)); };
  co_await for_all_peers(net, send);
}

/// Afterwards `out` on the root holds the sum of `in` over all ranks. On the other ranks, `out` is
/// ignored. On the root, `in` may be the same buffer as `out`; otherwise `in` is only read. The
/// root receives p-1 messages, one after another.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  if (net.rank() == root) {
    co_await sum_in_rank_order(net, in, out, op);
  } else {
    co_await net.send(root, bytes(in));
  }
}

/// Afterwards `data` of every rank holds the sum of the inputs of all ranks, with the same bits on
/// all ranks. Does a reduce to rank 0 and then a broadcast.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  co_await reduce(net, data, data, 0, op);
  co_await broadcast(net, data, 0);
}

/// Afterwards `out` on rank r holds chunk r of the sum of `in` over all ranks. `out` may be exactly
/// this rank's chunk of `in`. Apart from that, `in` is only read. Every rank sends one chunk to
/// each other rank, so all ranks together send p(p-1) messages.
template <channel Channel, buffer Data, class Op>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const chunks chunk(in, parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await when_all(for_all_peers(net, send),
                    net.concurrent(sum_in_rank_order(net, chunk[net.rank()], out, op)));
}

/// Before the call, chunk r of `data` on rank r holds the data of rank r. Afterwards every rank
/// holds all chunks. All ranks together send p(p-1) messages.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data data, partition parts) {
  const chunks chunk(data, parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[net.rank()])); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  co_await when_all(for_all_peers(net, send), for_all_peers(net, recv));
}

/// Afterwards chunk r of `all` on the root holds `own` of rank r. On the other ranks, `all` is
/// ignored. On the root, `own` may be exactly the root's chunk of `all`. All ranks together send
/// p-1 messages.
template <channel Channel, buffer Data>
task<> gather(Channel net, Data own, Data all, partition parts, int root) {
  if (net.rank() != root) {
    co_await net.send(root, bytes(own));
    co_return;
  }
  const chunks chunk(all, parts);
  const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  net.copy(bytes(chunk[root]), bytes(own));
  co_await for_all_peers(net, recv);
}

/// Afterwards `own` on rank r holds chunk r of `all` on the root. On the other ranks, `all` is
/// ignored. On the root, `own` may be exactly the root's chunk of `all`. The root sends p-1
/// messages.
template <channel Channel, buffer Data>
task<> scatter(Channel net, Data all, Data own, partition parts, int root) {
  if (net.rank() != root) {
    co_await net.recv(root, bytes(own));
    co_return;
  }
  const chunks chunk(all, parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await when_all(for_all_peers(net, send), copy_task(net, bytes(own), bytes(chunk[root])));
}

/// Afterwards chunk i of `out` on rank r holds chunk r of `in` on rank i. `in` is only read and
/// must not overlap `out`. Chunk i of `in_parts` on rank r must be as long as chunk r of
/// `out_parts` on rank i. All ranks together send p(p-1) messages, all of which may be in flight at
/// the same time.
template <channel Channel, buffer Data>
task<> all_to_all(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  const auto send = [&](int peer) { return net.send(peer, bytes(outgoing[peer])); };
  const auto recv = [&](int peer) { return net.recv(peer, bytes(arriving[peer])); };
  const mutable_bytes kept = bytes(arriving[net.rank()]);
  co_await when_all(for_all_peers(net, send), for_all_peers(net, recv),
                    copy_task(net, kept, bytes(outgoing[net.rank()])));
}

/// Afterwards `data` on rank r holds the sum of the inputs of ranks 0 to r. The partial sums travel
/// from rank to rank, in p-1 messages.
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  const int next = pattern::prefix(net.rank(), net.size()).dest(0);
  const int prev = pattern::prefix(net.rank(), net.size()).source(0);
  if (prev >= 0) co_await net.recv_reduce(prev, data, data, op, incoming::left);
  if (next >= 0) co_await net.send(next, bytes(data));
}

/// Afterwards `data` on rank r holds the sum of the inputs of ranks 0 to r-1. `data` on rank 0 is
/// unchanged. The partial sums travel from rank to rank, in p-1 messages.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const int next = pattern::prefix(net.rank(), net.size()).dest(0);
  const int prev = pattern::prefix(net.rank(), net.size()).source(0);
  scratch memory = net.scratch_like(data, prev >= 0 ? data.size() : 0);
  const Data lower = typed_view(data, memory.data(), data.size());
  if (prev >= 0) co_await net.recv(prev, bytes(lower));
  if (next >= 0) {
    if (prev >= 0) net.reduce(data, lower, data, op);
    co_await net.send(next, bytes(data));
  }
  if (prev >= 0) net.copy(bytes(data), bytes(lower));
}

}  // namespace colls::linear
