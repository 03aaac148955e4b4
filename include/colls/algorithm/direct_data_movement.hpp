// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_copies: what moves data without summing it, where ranks see each other's memory: each
// reads or writes it where it lies.

#include <colls/algorithm/direct_short.hpp>
#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/algorithm/multi_send_recv.hpp>
#include <colls/algorithm/shared_window.hpp>
#include <colls/base/partition.hpp>

namespace colls::direct {

/// Who reads what a root has.
inline readers readers_of_root(int ranks) { return ranks == 2 ? readers::one : readers::all; }
/// Shorter ones than these a root sends as fast as the kernel reads them.
inline constexpr std::size_t read_of_root = 32 * 1024;
/// Longer blocks than these the kernel copies as fast as a rank does to its desk.
inline constexpr std::size_t copied_by_blocks = 64 * 1024;

/// Afterwards chunk r of `out` on every rank holds `in` of rank r; `in` is only read, and may be
/// this rank's chunk of `out`. Each rank copies what it sees of the others and is sent the rest.
template <channel Channel, buffer Data>
task<> all_gather_lent(Channel net, Data in, Data out, partition parts) {
  const chunks chunk(out, parts);
  if (net.size() == 1) {
    net.copy(bytes(chunk[0]), bytes(in));
    co_return;
  }
  lending<Channel> peers(net, bytes(in), const_bytes(), readers::all);
  const auto extent = [&](int peer) { return bytes(chunk[peer]).size; };
  co_await peers.begin(extent, one_round::all(net), one_round::all(net));
  const auto give = [&](int peer) { return net.send(peer, bytes(in)); };
  const auto take = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  const auto copy = [&]() -> task<> {
    net.copy(bytes(chunk[net.rank()]), bytes(in));
    // Each begins with its neighbour, so that not all read the same memory at once.
    for (int i = 1; i < net.size(); ++i) {
      const int peer = (net.rank() + i) % net.size();
      if (peers.sees_in(peer)) co_await peers.copy_in(chunk[peer], peer);
    }
  };
  const auto blind = [&](int peer) { return !peers.lends_in(peer); };
  const auto unseen = [&](int peer) { return !peers.sees_in(peer); };
  co_await when_all(peers.with_those(blind, give), peers.with_those(unseen, take),
                    net.beside(copy()));
  co_await peers.end();
}
template <channel Channel, buffer Data>
  requires lending_transport<typename Channel::transport_type>
task<> all_gather_apart(Channel net, Data in, Data out, partition parts) {
  if (goes_whole(collective::all_gather, bytes(out).size, net.size())) {
    return in_one_step<whole::all_gather<Channel, Data>>(net, in, out, parts);
  }
  return all_gather_lent(net, in, out, parts);
}
/// The same where rank r holds chunk r in its place in `data`.
template <channel Channel, buffer Data>
  requires lending_transport<typename Channel::transport_type>
task<> all_gather(Channel net, Data data, partition parts) {
  return all_gather_apart(net, chunks(data, parts)[net.rank()], data, parts);
}

/// Afterwards `data` of every rank holds what `data` of the root held: each copies it from there,
/// or is sent it.
template <channel Channel, buffer Data>
task<> broadcast_lent(Channel net, Data data, int root) {
  const bool from_here = net.rank() == root;
  const bool is_sent = bytes(data).size < read_of_root;
  const readers own = is_sent ? readers::nobody : readers_of_root(net.size());
  lending<Channel> peers(net, from_here ? bytes(data) : mutable_bytes(), const_bytes(), own);
  const auto extent = [&](int) { return bytes(data).size; };
  const pattern::rank_range told = from_here ? one_round::all(net) : pattern::rank_range{0, 0};
  co_await peers.begin(extent, told, one_round::only(root));
  if (from_here) {
    const auto blind = [&](int peer) { return !peers.lends_in(peer); };
    const auto give = [&](int peer) { return net.send(peer, bytes(data)); };
    co_await peers.with_those(blind, give);
  } else if (peers.sees_in(root)) {
    co_await peers.copy_in(data, root);
  } else {
    co_await net.recv(root, bytes(data));
  }
  co_await peers.end();
}
template <channel Channel, buffer Data>
  requires lending_transport<typename Channel::transport_type>
task<> broadcast(Channel net, Data data, int root) {
  if (goes_whole(collective::broadcast, bytes(data).size, net.size())) {
    return in_one_step<whole::broadcast<Channel, Data>>(net, data, root);
  }
  return broadcast_lent(net, data, root);
}

/// Afterwards chunk r of `all` on the root holds `mine` of rank r; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. Each rank writes where the root sees it, or the
/// root reads where it sees the rank's, or a message brings it.
template <channel Channel, buffer Data>
task<> gather_lent(Channel net, Data mine, Data all, partition parts, int root) {
  const bool at_root = net.rank() == root;
  const chunks chunk(all, parts);
  const std::size_t element = element_size(mine);
  const auto in = [&](int peer) { return peer == root ? const_bytes(bytes(mine)) : const_bytes(); };
  const auto out = [&](int peer) { return at_root ? bytes(chunk[peer]) : mutable_bytes(); };
  lending<Channel> peers(net, in, out, readers::one);
  const auto extent = [&](int peer) { return parts.count(at_root ? peer : net.rank()) * element; };
  const pattern::rank_range with = at_root ? one_round::all(net) : one_round::only(root);
  co_await peers.begin(extent, with, with);
  if (at_root) {
    const auto sent = [&](int peer) { return !peers.lends_out(peer) && !peers.sees_in(peer); };
    const auto take = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
    const auto read = [&]() -> task<> {
      net.copy(bytes(chunk[root]), bytes(mine));
      for (int peer = 0; peer < net.size(); ++peer) {
        if (peer == root || peers.lends_out(peer) || !peers.sees_in(peer)) continue;
        co_await peers.copy_in(chunk[peer], peer);
      }
    };
    co_await when_all(peers.with_those(sent, take), net.beside(read()));
  } else if (peers.sees_out(root)) {
    co_await peers.copy_out(peers.out_of(root), mine);
  } else if (!peers.lends_in(root)) {
    co_await net.send(root, bytes(mine));
  }
  co_await peers.end();
}
template <channel Channel, buffer Data>
  requires lending_transport<typename Channel::transport_type>
task<> gather(Channel net, Data mine, Data all, partition parts, int root) {
  if (goes_whole(collective::gather, parts.total() * element_size(mine), net.size())) {
    return in_one_step<whole::gather<Channel, Data>>(net, mine, all, parts, root);
  }
  return gather_lent(net, mine, all, parts, root);
}

/// Afterwards `mine` on rank r holds chunk r of `all` on the root; elsewhere `all` is not looked
/// at. On the root `mine` may be exactly its chunk. Each rank reads where it sees the root's, or
/// the root writes where it sees the rank's, or a message brings it.
template <channel Channel, buffer Data>
task<> scatter_lent(Channel net, Data all, Data mine, partition parts, int root) {
  const bool at_root = net.rank() == root;
  const chunks chunk(all, parts);
  const std::size_t element = element_size(mine);
  const auto in = [&](int peer) {
    return at_root ? const_bytes(bytes(chunk[peer])) : const_bytes();
  };
  const auto out = [&](int peer) { return peer == root ? bytes(mine) : mutable_bytes(); };
  lending<Channel> peers(net, in, out, readers_of_root(net.size()));
  const auto extent = [&](int peer) { return parts.count(at_root ? peer : net.rank()) * element; };
  const pattern::rank_range with = at_root ? one_round::all(net) : one_round::only(root);
  co_await peers.begin(extent, with, with);
  if (at_root) {
    const auto sent = [&](int peer) { return !peers.lends_in(peer) && !peers.sees_out(peer); };
    const auto give = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
    const auto write = [&]() -> task<> {
      net.copy(bytes(mine), bytes(chunk[root]));
      for (int peer = 0; peer < net.size(); ++peer) {
        if (peer == root || peers.lends_in(peer) || !peers.sees_out(peer)) continue;
        co_await peers.copy_out(peers.out_of(peer), chunk[peer]);
      }
    };
    co_await when_all(peers.with_those(sent, give), net.beside(write()));
  } else if (peers.sees_in(root)) {
    co_await peers.copy_in(mine, root);
  } else if (!peers.lends_out(root)) {
    co_await net.recv(root, bytes(mine));
  }
  co_await peers.end();
}
template <channel Channel, buffer Data>
  requires lending_transport<typename Channel::transport_type>
task<> scatter(Channel net, Data all, Data mine, partition parts, int root) {
  if (goes_whole(collective::scatter, parts.total() * element_size(mine), net.size())) {
    return in_one_step<whole::scatter<Channel, Data>>(net, all, mine, parts, root);
  }
  return scatter_lent(net, all, mine, parts, root);
}

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. Each rank reads what it sees of the others and is sent the
/// rest.
template <channel Channel, buffer Data>
task<> all_to_all_lent(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  // With counts of its own each rank compares them by messages.
  const bool equal = in_parts.is_blocks() && out_parts.is_blocks();
  const bool at_desks = equal && in_parts.longest() * element_size(in) <= copied_by_blocks;
  const auto copies =
      desk<Channel>::of_many(net, at_desks ? const_bytes(bytes(in)) : const_bytes());
  const auto lent = [&](int peer) {
    return equal ? copies.in(bytes(outgoing[peer])) : const_bytes();
  };
  const auto spent = [&](int peer) {
    return equal ? copies.spent(bytes(outgoing[peer])) : mutable_bytes();
  };
  lending<Channel> peers(net, lent, spent, equal ? readers::all : readers::nobody);
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peers.lends_in(peer)) copies.bring(net, bytes(outgoing[peer]));
  }
  const auto extent = [&](int peer) { return bytes(arriving[peer]).size; };
  co_await peers.begin(extent, one_round::all(net), one_round::all(net));
  const auto blind = [&](int peer) { return !peers.lends_in(peer); };
  const auto unseen = [&](int peer) { return !peers.sees_in(peer); };
  const auto give = [&](int peer) { return net.send(peer, bytes(outgoing[peer])); };
  const auto take = [&](int peer) { return net.recv(peer, bytes(arriving[peer])); };
  const auto read = [&]() -> task<> {
    net.copy(bytes(arriving[net.rank()]), bytes(outgoing[net.rank()]));
    for (int i = 1; i < net.size(); ++i) {
      const int peer = (net.rank() + i) % net.size();
      if (peers.sees_in(peer)) co_await peers.copy_in(arriving[peer], peer);
    }
  };
  co_await when_all(peers.with_those(blind, give), peers.with_those(unseen, take),
                    net.beside(read()));
  co_await peers.end();
}
template <channel Channel, buffer Data>
  requires lending_transport<typename Channel::transport_type>
task<> all_to_all(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  if (in_parts.is_blocks() && out_parts.is_blocks() &&
      goes_whole(collective::all_to_all, bytes(in).size, net.size())) {
    return in_one_step<whole::all_to_all<Channel, Data>>(net, in, in_parts, out, out_parts);
  }
  return all_to_all_lent(net, in, in_parts, out, out_parts);
}

}  // namespace colls::direct
