// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// linear: the simplest algorithm for every collective. Ranks send directly to each other. Sums are
// folded in rank order, ((x0 + x1) + x2) + ..., so operations need not commute. Below, p is the
// number of ranks.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern.hpp>

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

/// Rank 0 receives an empty message from each other rank, and then sends an empty message to each
/// other rank.
struct barrier_algorithm : built_in<collective::barrier, algorithm::linear> {
  template <channel Channel>
  static task<> run(Channel net) {
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

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.star_in(0) + model.star_out(0);
  }
};
inline constexpr barrier_algorithm barrier;

/// The root sends p-1 messages, each with the whole buffer.
struct broadcast_algorithm : built_in<collective::broadcast, algorithm::linear> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data data, int root) {
    if (net.rank() != root) {
      co_await net.recv(root, bytes(data));
      co_return;
    }
    const auto send = [&](int peer) { return net.send(peer, bytes(data)); };
    co_await for_all_peers(net, send);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.star_out(model.bytes());
  }
};
inline constexpr broadcast_algorithm broadcast;

/// The root receives p-1 messages, one after another.
struct reduce_algorithm : built_in<collective::reduce, algorithm::linear> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, int root, Op op) {
    if (net.rank() == root) {
      co_await sum_in_rank_order(net, in, out, op);
    } else {
      co_await net.send(root, bytes(in));
    }
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.star_sum(model.bytes());
  }
};
inline constexpr reduce_algorithm reduce;

/// Does a reduce to rank 0 and then a broadcast.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::linear> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    co_await reduce.run(net, in, out, 0, op);
    co_await broadcast.run(net, out, 0);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.star_sum(model.bytes()) + model.star_out(model.bytes());
  }
};
inline constexpr all_reduce_algorithm all_reduce;

/// Every rank sends one chunk to each other rank, so all ranks together send p(p-1) messages.
struct reduce_scatter_algorithm : built_in<collective::reduce_scatter, algorithm::linear> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, partition parts, Op op) {
    const chunks chunk(in, parts);
    const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
    co_await when_all(for_all_peers(net, send),
                      net.concurrent(sum_in_rank_order(net, chunk[net.rank()], out, op)));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.reduced(model.mesh(model.chunk_bytes()), model.bytes() - model.chunk_bytes());
  }
};
inline constexpr reduce_scatter_algorithm reduce_scatter;

/// All ranks together send p(p-1) messages.
struct all_gather_algorithm : built_in<collective::all_gather, algorithm::linear> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    const chunks chunk(out, parts);
    const auto send = [&](int peer) { return net.send(peer, bytes(in)); };
    const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
    co_await when_all(for_all_peers(net, send), for_all_peers(net, recv),
                      copy_task(net, bytes(chunk[net.rank()]), bytes(in)));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.mesh(model.chunk_bytes());
  }
};
inline constexpr all_gather_algorithm all_gather;

/// All ranks together send p-1 messages.
struct gather_algorithm : built_in<collective::gather, algorithm::linear> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data own, Data all, partition parts, int root) {
    if (net.rank() != root) {
      co_await net.send(root, bytes(own));
      co_return;
    }
    const chunks chunk(all, parts);
    const auto recv = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
    net.copy(bytes(chunk[root]), bytes(own));
    co_await for_all_peers(net, recv);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.star_in(model.chunk_bytes());
  }
};
inline constexpr gather_algorithm gather;

/// The root sends p-1 messages.
struct scatter_algorithm : built_in<collective::scatter, algorithm::linear> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data all, Data own, partition parts, int root) {
    if (net.rank() != root) {
      co_await net.recv(root, bytes(own));
      co_return;
    }
    const chunks chunk(all, parts);
    const auto send = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
    co_await when_all(for_all_peers(net, send), copy_task(net, bytes(own), bytes(chunk[root])));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.star_out(model.chunk_bytes());
  }
};
inline constexpr scatter_algorithm scatter;

/// All ranks together send p(p-1) messages, all of which may be in flight at the same time.
struct all_to_all_algorithm : built_in<collective::all_to_all, algorithm::linear> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
    const chunks outgoing(in, in_parts);
    const chunks arriving(out, out_parts);
    const auto send = [&](int peer) { return net.send(peer, bytes(outgoing[peer])); };
    const auto recv = [&](int peer) { return net.recv(peer, bytes(arriving[peer])); };
    const mutable_bytes kept = bytes(arriving[net.rank()]);
    co_await when_all(for_all_peers(net, send), for_all_peers(net, recv),
                      copy_task(net, kept, bytes(outgoing[net.rank()])));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.mesh(model.chunk_bytes());
  }
};
inline constexpr all_to_all_algorithm all_to_all;

/// The partial sums travel from rank to rank, in p-1 messages.
struct scan_algorithm : built_in<collective::scan, algorithm::linear> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const pattern::prefix line(net.rank(), net.size());
    const int next = line.dest(0);
    const int prev = line.source(0);
    if (prev >= 0) {
      co_await net.recv_reduce(prev, in, out, op, incoming::left);
    } else {
      net.copy(bytes(out), bytes(in));
    }
    if (next >= 0) co_await net.send(next, bytes(out));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.pipeline(model.bytes(), model.number(model.ranks() - 1), 1, {}, true);
  }
};
inline constexpr scan_algorithm scan;

/// The partial sums travel from rank to rank, in p-1 messages.
struct exscan_algorithm : built_in<collective::exscan, algorithm::linear> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const pattern::prefix line(net.rank(), net.size());
    const int next = line.dest(0);
    const int prev = line.source(0);
    if (prev < 0) {
      if (next >= 0) co_await net.send(next, bytes(in));
      co_return;
    }
    const scratch memory = net.scratch_like(in, in.size());
    const Data lower = typed_view(in, memory.data(), in.size());
    co_await net.recv(prev, bytes(lower));
    if (next >= 0) {
      net.reduce(out, lower, in, op);
      co_await net.send(next, bytes(out));
    }
    net.copy(bytes(out), bytes(lower));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return scan.cost(model, choice);
  }
};
inline constexpr exscan_algorithm exscan;

}  // namespace colls::linear
