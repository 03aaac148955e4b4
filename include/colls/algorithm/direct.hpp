// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct: nothing is sent but where the data lies. For ranks that see each other's memory; what a
// rank does not lend goes by messages, the same way.

#include <colls/algorithm/lending.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/costs.hpp>
#include <colls/partition.hpp>

namespace colls::direct {

/// Afterwards every rank holds the same sum in `data`, with the bits of the sequential sum, where
/// all ranks run on one thread. Rank 0 learns where all buffers lie, adds them up where they are,
/// piece by piece of the cache's size, and writes each piece to all: every input is read once and
/// every output written once. 2(p-1) messages, of which none carries data.
template <channel Channel, buffer Data, class Op>
task<> all_reduce_by_one(Channel net, Data data, Op op) {
  void* mine = data.data();
  const any_buffer where(&mine, 1, sizeof mine);
  const mutable_bytes token;
  if (net.rank() != 0) {
    co_await net.send(0, bytes(where));
    co_await net.recv(0, token);
    co_return;
  }
  detail::recycled_vector<void*> places(static_cast<std::size_t>(net.size()), mine);
  const chunks place(any_buffer(places.data(), places.size(), sizeof mine),
                     partition::blocks(1, net.size()));
  const auto learn = [&](int peer) { return net.recv(peer, bytes(place[peer])); };
  co_await linear::with_all_others(net, learn);
  net.require_good();
  detail::recycled_vector<const void*> parts(places.size());
  constexpr std::size_t cached = 16 * 1024;
  const std::size_t step = elements_in(cached, element_size(data));
  for (std::size_t at = 0; at < data.size(); at += step) {
    const std::size_t n = step < data.size() - at ? step : data.size() - at;
    const auto part = [&](std::size_t rank) {
      return placed(data, places[rank], data.size()).subspan(at, n);
    };
    const Data sum = part(0);
    for (std::size_t rank = 0; rank < parts.size(); ++rank) parts[rank] = part(rank).data();
    if (parts.size() > 1) net.reduce(sum, parts, op);
    for (std::size_t rank = 1; rank < parts.size(); ++rank) net.copy(bytes(part(rank)), bytes(sum));
  }
  const auto tell = [&](int peer) { return net.send(peer, token); };
  co_await linear::with_all_others(net, tell);
}

/// No input lies where the sum goes.
inline constexpr int apart = -1;

/// sum = parts[0] (+) parts[1] (+) ..., where `sum` may be part `aliased`. The parts before that one
/// are added up in `spare`.
template <channel Channel, buffer Data, class Op>
void add_up(const Channel& net, Data sum, std::span<const void*> parts, int aliased, void* spare,
            const Op& op) {
  if (parts.size() == 1) {
    return net.copy(bytes(sum), {static_cast<const std::byte*>(parts[0]), bytes(sum).size});
  }
  if (aliased > 1) {
    const auto before = static_cast<std::size_t>(aliased);
    net.reduce(placed(sum, spare, sum.size()), parts.first(before), op);
    parts = parts.subspan(before - 1);
    parts[0] = spare;
  }
  net.reduce(sum, parts, op);
}

/// Leaves in `sum` the sum in rank order of a chunk: `own` here, `offset` elements into the input
/// of every other rank. The input of rank `aliased` lies where `sum` does. One pass over all
/// inputs, piece by piece; `deliver(first, count)` follows each piece while it is in the cache.
template <channel Channel, buffer Data, class Op, class Deliver>
task<> fold_seen(Channel net, lending<Channel>& peers, Data own, std::size_t offset, Data sum,
                 int aliased, Op op, Deliver deliver) {
  const std::size_t element = element_size(own);
  const std::size_t longest = std::max(element, peers.cached);
  const scratch memory(net.scratch_bytes(aliased > 1 ? longest : 0));
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(net.size()));
  const auto work = [&](std::size_t at, std::size_t n) {
    for (int rank = 0; rank < net.size(); ++rank) {
      parts[static_cast<std::size_t>(rank)] = rank == net.rank()
                                                  ? bytes(own.subspan(at, n)).data
                                                  : peers.in_of(rank) + (offset + at) * element;
    }
    add_up(net, sum.subspan(at, n), parts, aliased, memory.data(), op);
    deliver(at, n);
  };
  co_await peers.in_pieces(own.size(), element, work);
}

/// The same where some inputs come as messages, in `sum`'s own memory; `sum` may be `own`.
template <channel Channel, buffer Data, class Op>
task<> fold_mixed(Channel net, lending<Channel>& peers, Data own, std::size_t offset, Data sum,
                  Op op) {
  const int mine = net.rank();
  const std::size_t element = element_size(own);
  const bool in_place = own.data() == sum.data();
  const scratch memory(net.scratch_like(own, in_place && mine > 1 ? own.size() : 0));
  const Data lower = in_place && mine > 1 ? placed(own, memory.data(), own.size()) : sum;
  const auto part = [&](int rank, std::size_t at, std::size_t n) {
    return placed(own, peers.in_of(rank) + (offset + at) * element, n);
  };
  Data partial = own;
  int next = 1;
  if (mine == 1) {
    const auto work = [&](std::size_t at, std::size_t n) {
      net.reduce(sum.subspan(at, n), part(0, at, n), own.subspan(at, n), op);
    };
    if (peers.sees_in(0)) {
      co_await peers.in_pieces(own.size(), element, work);
    } else {
      co_await net.recv_reduce(0, own, sum, op, incoming::left);
    }
    partial = sum;
    next = 2;
  } else if (mine > 1) {
    const auto work = [&](std::size_t at, std::size_t n) {
      net.copy(bytes(lower.subspan(at, n)), bytes(part(0, at, n)));
    };
    if (peers.sees_in(0)) {
      co_await peers.in_pieces(own.size(), element, work);
    } else {
      co_await net.recv(0, bytes(lower));
    }
    partial = lower;
  }
  for (int rank = next; rank < net.size(); ++rank) {
    const Data into = rank < mine ? lower : sum;
    const auto work = [&](std::size_t at, std::size_t n) {
      net.reduce(into.subspan(at, n), partial.subspan(at, n), part(rank, at, n), op);
    };
    if (rank == mine) {
      net.reduce(into, partial, own, op);
    } else if (peers.sees_in(rank)) {
      co_await peers.in_pieces(own.size(), element, work);
    } else {
      co_await net.recv_reduce(rank, partial, into, op, incoming::right);
    }
    partial = into;
  }
}

template <channel Channel>
bool sees_all(const Channel& net, const lending<Channel>& peers) {
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peer != net.rank() && !peers.sees_in(peer)) return false;
  }
  return true;
}

/// `fold_seen` where this rank sees all inputs, else `fold_mixed`.
template <channel Channel, buffer Data, class Op>
task<> fold(Channel net, lending<Channel>& peers, Data own, std::size_t offset, Data sum,
            int aliased, Op op) {
  const auto nothing = [](std::size_t, std::size_t) {};
  if (sees_all(net, peers)) return fold_seen(net, peers, own, offset, sum, aliased, op, nothing);
  return fold_mixed(net, peers, own, offset, sum, op);
}

/// This rank's chunk of `in` goes to whoever does not see it.
template <channel Channel, buffer Data>
task<> give_chunks(Channel net, lending<Channel>& peers, Data in, partition parts) {
  const chunks chunk(in, parts);
  const auto blind = [&](int peer) { return !peers.lends_in(peer); };
  const auto give = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await peers.with_those(blind, give);
}

/// The sum of this rank's chunk, and then to every rank's `out`.
template <channel Channel, buffer Data, class Op>
task<> sum_for_all(Channel net, Channel results, lending<Channel>& peers, Data in, Data out,
                   partition parts, Op op) {
  const std::size_t offset = parts.offset(net.rank());
  const Data own = chunks(in, parts)[net.rank()];
  const Data sum = chunks(out, parts)[net.rank()];
  const std::size_t element = element_size(out);
  const auto spread = [&](std::size_t at, std::size_t n) {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer == net.rank() || !peers.sees_out(peer)) continue;
      const Data there = placed(sum, peers.out_of(peer) + (offset + at) * element, n);
      net.copy(bytes(there), bytes(sum.subspan(at, n)));
    }
  };
  if (sees_all(net, peers)) {
    const int aliased = in.data() == out.data() ? net.rank() : apart;
    co_await fold_seen(net, peers, own, offset, sum, aliased, op, spread);
  } else {
    co_await fold_mixed(net, peers, own, offset, sum, op);
    co_await peers.in_pieces(sum.size(), element, spread);
  }
  const auto blind = [&](int peer) { return !peers.sees_out(peer); };
  const auto give = [&](int peer) { return results.send(peer, bytes(sum)); };
  co_await peers.with_those(blind, give);
}

/// `parts` gets what the other ranks give as `mine`, each in the place of its rank: one round.
template <channel Channel>
task<> share_by_messages(Channel net, const_bytes mine, std::byte* parts) {
  const auto give = [&](int peer) { return net.send(peer, mine); };
  const auto take = [&](int peer) {
    return net.recv(peer, {parts + static_cast<std::size_t>(peer) * mine.size, mine.size});
  };
  co_await when_all(linear::with_all_others(net, give), linear::with_all_others(net, take));
}
template <channel Channel>
auto share_with_all(Channel net, const_bytes mine, std::byte* parts) {
  if constexpr (sharing_transport<typename Channel::transport_type>) {
    return net.share(mine, parts);
  } else {
    return share_by_messages(net, mine, parts);
  }
}

/// Ends on no rank before all ranks have called it. One round of p(p-1) empty messages.
template <channel Channel>
task<> barrier(Channel net) {
  co_await share_with_all(net, const_bytes(), nullptr);
}

/// Afterwards every rank holds the same sum in `out`, with the bits of the sequential sum; `in` is
/// only read, and may be `out`. Each rank sends its whole input to all others and adds all up itself:
/// one round.
template <channel Channel, buffer Data, class Op>
task<> all_reduce_whole(Channel net, Data in, Data out, Op op) {
  const int mine = net.rank();
  const std::size_t size = bytes(in).size;
  const int ranks = net.size();
  const scratch memory(net.scratch_bytes(ranks == 1 ? 0 : static_cast<std::size_t>(ranks) * size));
  co_await share_with_all(net, bytes(in), memory.data());
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    parts[static_cast<std::size_t>(rank)] =
        rank == mine ? bytes(in).data : memory.data() + static_cast<std::size_t>(rank) * size;
  }
  add_up(net, out, parts, in.data() == out.data() ? mine : apart, memory.data(), op);
}

/// The same where each rank adds up one chunk, reading it where it lies, and writes it to all: each
/// input is read once and each output written once. What a rank does not lend it copies to a desk
/// for those who read it there, and takes the sums from the desk. Where peers see neither, 2(p-1)/p
/// of the buffer is sent by each rank.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> all_reduce_in_chunks(
    Channel net, Data in, Data out, Op op) {
  const partition parts(out.size(), net.size());
  const chunks inputs(in, parts);
  const chunks sums(out, parts);
  const desk<Channel> copy(net, bytes(in), bytes(out));
  const chunks copies(placed(in, copy.data(), in.size()), parts);
  lending<Channel> peers(net, copy.in(), copy.out());
  for (int peer = 0; peer < net.size(); ++peer) {
    if (!copy.has_in() || !peers.lends_in(peer)) continue;
    net.copy(bytes(copies[peer]), bytes(inputs[peer]));
    net.record().bytes += bytes(inputs[peer]).size;
  }
  co_await peers.begin(bytes(in).size);
  const Channel results = net.lane(net.width());
  const auto blind = [&](int peer) { return !peers.lends_out(peer); };
  const auto take = [&](int peer) { return results.recv(peer, bytes(sums[peer])); };
  co_await when_all(give_chunks(net, peers, in, parts),
                    sum_for_all(net, results, peers, in, out, parts, op),
                    peers.with_those(blind, take));
  co_await peers.end();
  for (int peer = 0; peer < net.size(); ++peer) {
    if (!copy.has_out() || !peers.lends_out(peer)) continue;
    net.copy(bytes(sums[peer]), bytes(copies[peer]));
    net.record().bytes += bytes(sums[peer]).size;
  }
}
/// Piece by piece of what a desk holds.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> all_reduce_in_pieces(
    Channel net, Data in, Data out, Op op) {
  const std::size_t step = elements_in(desk<Channel>::size, element_size(in));
  const auto least = static_cast<int>((in.size() + step - 1) / step);
  const std::size_t chunk = partition(in.size(), net.size()).longest() * element_size(in);
  const int count = std::max(least, net.segments(chunk));
  const partition pieces(in.size(), count);
  const auto piece = [&](Channel lane, int k) {
    const std::size_t at = pieces.offset(k);
    const std::size_t n = pieces.count(k);
    return all_reduce_in_chunks(lane, in.subspan(at, n), out.subspan(at, n), op);
  };
  co_await in_lanes(net, net.width(), count, piece);
}

/// Afterwards every rank holds the same sum in `out`, with the bits of the sequential sum; `in` is
/// only read, and may be `out`. A short input goes to all ranks.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> all_reduce_apart(Channel net,
                                                                                     Data in,
                                                                                     Data out,
                                                                                     Op op) {
  if (goes_whole(bytes(in).size, net.size())) return all_reduce_whole(net, in, out, op);
  return all_reduce_in_pieces(net, in, out, op);
}

/// The same in place.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data data, Op op) {
  if constexpr (lending_transport<typename Channel::transport_type>) {
    return all_reduce_apart(net, data, data, op);
  } else {
    static_assert(addressable_transport<typename Channel::transport_type>);
    return all_reduce_by_one(net, data, op);
  }
}

/// Afterwards rank r holds the finished chunk r in `out`, with the bits of the sequential sum; `in`
/// is only read, and `out` may be exactly this rank's chunk of it. Every rank reads its chunk where
/// it lies, or is sent it.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> reduce_scatter(
    Channel net, Data in, Data out, partition parts, Op op) {
  if (net.size() == 1) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
  lending<Channel> peers(net, bytes(in), const_bytes());
  co_await peers.begin(bytes(in).size);
  const int segments = net.segments(parts.longest() * element_size(in));
  const std::size_t start = parts.offset(net.rank());
  const auto piece = [&](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    const std::size_t offset = part.offset(lane.rank());
    const Data own = chunks(in, part)[lane.rank()];
    const Data sum = out.subspan(offset - start, own.size());
    const int aliased = own.data() == sum.data() ? lane.rank() : apart;
    co_await when_all(give_chunks(lane, peers, in, part),
                      fold(lane, peers, own, offset, sum, aliased, op));
  };
  co_await in_lanes(net, net.width(), segments, piece);
  co_await peers.end();
}

/// Afterwards `out` of the root holds the sum, with the bits of the sequential sum; elsewhere `out`
/// is not looked at. `in` is only read; on the root it may be `out`. Each rank adds up one chunk,
/// in the root's memory if it sees that, else it sends it.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> reduce(Channel net, Data in,
                                                                           Data out, int root,
                                                                           Op op) {
  const bool at_root = net.rank() == root;
  if (net.size() == 1) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
  lending<Channel> peers(net, bytes(in), at_root ? bytes(out) : mutable_bytes());
  co_await peers.begin(bytes(in).size);
  const partition parts(in.size(), net.size());
  const std::size_t element = element_size(in);
  const int segments = net.segments(parts.longest() * element);
  const auto piece = [&](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    const Channel results = lane.lane(lane.width());
    const std::size_t offset = part.offset(lane.rank());
    const Data own = chunks(in, part)[lane.rank()];
    if (!at_root && sees_all(lane, peers) && peers.sees_out(root)) {
      const Data there = placed(own, peers.out_of(root) + offset * element, own.size());
      const int aliased = peers.is_in_place(root) ? root : apart;
      co_await when_all(give_chunks(lane, peers, in, part),
                        fold(lane, peers, own, offset, there, aliased, op));
      co_return;
    }
    const scratch memory(lane.scratch_like(own, at_root ? 0 : own.size()));
    const Data sum = at_root ? chunks(out, part)[root] : placed(own, memory.data(), own.size());
    const int aliased = own.data() == sum.data() ? root : apart;
    const auto blind = [&](int peer) { return at_root && !peers.lends_out(peer); };
    const auto take = [&](int peer) { return results.recv(peer, bytes(chunks(out, part)[peer])); };
    co_await when_all(give_chunks(lane, peers, in, part),
                      fold(lane, peers, own, offset, sum, aliased, op),
                      peers.with_those(blind, take));
    if (at_root) co_return;
    if (peers.sees_out(root)) {
      const auto spread = [&](std::size_t at, std::size_t n) {
        net.copy({peers.out_of(root) + (offset + at) * element, n * element},
                 bytes(sum.subspan(at, n)));
      };
      co_await peers.in_pieces(sum.size(), element, spread);
    } else {
      co_await results.send(root, bytes(sum));
    }
  };
  co_await in_lanes(net, net.width(), segments, piece);
  co_await peers.end();
}

/// Before, rank r holds chunk r in its place in `data`; afterwards every rank holds all chunks.
/// Each rank copies what it sees of the others and is sent the rest.
template <channel Channel, buffer Data>
requires lending_transport<typename Channel::transport_type> task<> all_gather(Channel net,
                                                                               Data data,
                                                                               partition parts) {
  if (net.size() == 1) co_return;
  lending<Channel> peers(net, bytes(data), const_bytes());
  co_await peers.begin(bytes(data).size);
  const chunks chunk(data, parts);
  const std::size_t element = element_size(data);
  const auto give = [&](int peer) { return net.send(peer, bytes(chunk[net.rank()])); };
  const auto take = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
  const auto copy = [&]() -> task<> {
    // Each begins with its neighbour, so that not all read the same memory at once.
    for (int i = 1; i < net.size(); ++i) {
      const int peer = (net.rank() + i) % net.size();
      if (!peers.sees_in(peer)) continue;
      co_await peers.copy_in(chunk[peer], peers.in_of(peer) + parts.offset(peer) * element);
    }
  };
  const auto blind = [&](int peer) { return !peers.lends_in(peer); };
  const auto unseen = [&](int peer) { return !peers.sees_in(peer); };
  co_await when_all(peers.with_those(blind, give), copy(), peers.with_those(unseen, take));
  co_await peers.end();
}

/// Afterwards `data` of every rank holds what `data` of the root held: each copies it from there,
/// or is sent it.
template <channel Channel, buffer Data>
requires lending_transport<typename Channel::transport_type> task<> broadcast(Channel net,
                                                                              Data data, int root) {
  const bool from_here = net.rank() == root;
  lending<Channel> peers(net, from_here ? bytes(data) : mutable_bytes(), const_bytes());
  const auto extent = [&](int) { return bytes(data).size; };
  const auto told = [&](int) { return from_here; };
  const auto heard = [&](int peer) { return peer == root; };
  co_await peers.begin(extent, told, heard);
  if (from_here) {
    const auto blind = [&](int peer) { return !peers.lends_in(peer); };
    const auto give = [&](int peer) { return net.send(peer, bytes(data)); };
    co_await peers.with_those(blind, give);
  } else if (peers.sees_in(root)) {
    co_await peers.copy_in(data, peers.in_of(root));
  } else {
    co_await net.recv(root, bytes(data));
  }
  co_await peers.end();
}

/// Afterwards chunk r of `all` on the root holds `mine` of rank r; elsewhere `all` is not looked at.
/// On the root `mine` may be exactly its chunk. Each rank writes where the root sees it, or the root
/// reads where it sees the rank's, or a message brings it.
template <channel Channel, buffer Data>
requires lending_transport<typename Channel::transport_type> task<> gather(Channel net, Data mine,
                                                                           Data all,
                                                                           partition parts,
                                                                           int root) {
  const bool at_root = net.rank() == root;
  const chunks chunk(all, parts);
  const std::size_t element = element_size(mine);
  const auto in = [&](int peer) { return peer == root ? const_bytes(bytes(mine)) : const_bytes(); };
  const auto out = [&](int peer) { return at_root ? bytes(chunk[peer]) : mutable_bytes(); };
  lending<Channel> peers(net, in, out);
  const auto extent = [&](int peer) { return parts.count(at_root ? peer : net.rank()) * element; };
  const auto with_root = [&](int peer) { return at_root || peer == root; };
  co_await peers.begin(extent, with_root, with_root);
  if (at_root) {
    net.copy(bytes(chunk[root]), bytes(mine));
    const auto sent = [&](int peer) { return !peers.lends_out(peer) && !peers.sees_in(peer); };
    const auto take = [&](int peer) { return net.recv(peer, bytes(chunk[peer])); };
    const auto read = [&]() -> task<> {
      for (int peer = 0; peer < net.size(); ++peer) {
        if (peer == root || peers.lends_out(peer) || !peers.sees_in(peer)) continue;
        co_await peers.copy_in(chunk[peer], peers.in_of(peer));
      }
    };
    co_await when_all(peers.with_those(sent, take), read());
  } else if (peers.sees_out(root)) {
    co_await peers.copy_out(peers.out_of(root), mine);
  } else if (!peers.lends_in(root)) {
    co_await net.send(root, bytes(mine));
  }
  co_await peers.end();
}

/// Afterwards `mine` on rank r holds chunk r of `all` on the root; elsewhere `all` is not looked at.
/// On the root `mine` may be exactly its chunk. Each rank reads where it sees the root's, or the root
/// writes where it sees the rank's, or a message brings it.
template <channel Channel, buffer Data>
requires lending_transport<typename Channel::transport_type> task<> scatter(Channel net, Data all,
                                                                            Data mine,
                                                                            partition parts,
                                                                            int root) {
  const bool at_root = net.rank() == root;
  const chunks chunk(all, parts);
  const std::size_t element = element_size(mine);
  const auto in = [&](int peer) {
    return at_root ? const_bytes(bytes(chunk[peer])) : const_bytes();
  };
  const auto out = [&](int peer) { return peer == root ? bytes(mine) : mutable_bytes(); };
  lending<Channel> peers(net, in, out);
  const auto extent = [&](int peer) { return parts.count(at_root ? peer : net.rank()) * element; };
  const auto with_root = [&](int peer) { return at_root || peer == root; };
  co_await peers.begin(extent, with_root, with_root);
  if (at_root) {
    net.copy(bytes(mine), bytes(chunk[root]));
    const auto sent = [&](int peer) { return !peers.lends_in(peer) && !peers.sees_out(peer); };
    const auto give = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
    const auto write = [&]() -> task<> {
      for (int peer = 0; peer < net.size(); ++peer) {
        if (peer == root || peers.lends_in(peer) || !peers.sees_out(peer)) continue;
        co_await peers.copy_out(peers.out_of(peer), chunk[peer]);
      }
    };
    co_await when_all(peers.with_those(sent, give), write());
  } else if (peers.sees_in(root)) {
    co_await peers.copy_in(mine, peers.in_of(root));
  } else if (!peers.lends_out(root)) {
    co_await net.recv(root, bytes(mine));
  }
  co_await peers.end();
}

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. Each rank reads what it sees of the others and is sent the rest.
template <channel Channel, buffer Data>
requires lending_transport<typename Channel::transport_type> task<> all_to_all(
    Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const chunks outgoing(in, in_parts);
  const chunks arriving(out, out_parts);
  const auto lent = [&](int peer) { return const_bytes(bytes(outgoing[peer])); };
  const auto nothing = [](int) { return const_bytes(); };
  lending<Channel> peers(net, lent, nothing);
  const auto extent = [&](int peer) { return bytes(arriving[peer]).size; };
  const auto all = [](int) { return true; };
  co_await peers.begin(extent, all, all);
  net.copy(bytes(arriving[net.rank()]), bytes(outgoing[net.rank()]));
  const auto blind = [&](int peer) { return !peers.lends_in(peer); };
  const auto unseen = [&](int peer) { return !peers.sees_in(peer); };
  const auto give = [&](int peer) { return net.send(peer, bytes(outgoing[peer])); };
  const auto take = [&](int peer) { return net.recv(peer, bytes(arriving[peer])); };
  const auto read = [&]() -> task<> {
    for (int i = 1; i < net.size(); ++i) {
      const int peer = (net.rank() + i) % net.size();
      if (peers.sees_in(peer)) co_await peers.copy_in(arriving[peer], peers.in_of(peer));
    }
  };
  co_await when_all(peers.with_those(blind, give), read(), peers.with_those(unseen, take));
  co_await peers.end();
}

/// Each rank makes the prefixes of one chunk for all, in place where it sees them, else of what it
/// was sent, and sends them back. `gives(rank)`: its part is in some sum; `gets(rank)`: it has one.
/// `sum_up(of, at, count)` replaces by sums `count` elements from `at` on of the parts `of(rank)`.
template <channel Channel, buffer Data, class Gives, class Gets, class SumUp>
task<> prefixes(Channel net, Data data, Gives gives, Gets gets, SumUp sum_up) {
  if (net.size() == 1) co_return;
  const int p = net.size();
  const int mine = net.rank();
  const Channel results = net.lane(1);
  lending<Channel> peers(net, bytes(data), const_bytes());
  co_await peers.begin(bytes(data).size);
  const partition parts(data.size(), p);
  const chunks chunk(data, parts);
  const std::size_t element = element_size(data);
  const std::size_t n = parts.count(mine);
  const std::size_t room = static_cast<std::size_t>(p) * n * element;
  const scratch sent(net.scratch_bytes(sees_all(net, peers) ? 0 : room));
  const auto of = [&](int rank) {
    if (rank == mine) return chunk[mine];
    if (peers.sees_in(rank)) {
      return placed(data, peers.in_of(rank) + parts.offset(mine) * element, n);
    }
    return placed(data, sent.data() + static_cast<std::size_t>(rank) * n * element, n);
  };
  const auto given = [&](int peer) { return gives(mine) && !peers.lends_in(peer); };
  const auto taken = [&](int peer) { return gives(peer) && !peers.sees_in(peer); };
  const auto give = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  const auto take = [&](int peer) { return net.recv(peer, bytes(of(peer))); };
  co_await when_all(peers.with_those(given, give), peers.with_those(taken, take));

  const auto work = [&](std::size_t at, std::size_t count) { sum_up(of, at, count); };
  co_await peers.in_pieces(n, element, work);

  const auto told = [&](int peer) { return gets(peer) && !peers.sees_in(peer); };
  const auto awaited = [&](int peer) { return gets(mine) && !peers.lends_in(peer); };
  const auto tell = [&](int peer) { return results.send(peer, bytes(of(peer))); };
  const auto hear = [&](int peer) { return results.recv(peer, bytes(chunk[peer])); };
  co_await when_all(peers.with_those(told, tell), peers.with_those(awaited, hear));
  co_await peers.end();
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r, with the bits of the sequential sum.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> scan(Channel net, Data data,
                                                                         Op op) {
  const auto all = [](int) { return true; };
  const auto sum_up = [&](const auto& of, std::size_t at, std::size_t count) {
    Data before = of(0).subspan(at, count);
    for (int rank = 1; rank < net.size(); ++rank) {
      const Data own = of(rank).subspan(at, count);
      net.reduce(own, before, own, op);
      before = own;
    }
  };
  co_await prefixes(net, data, all, all, sum_up);
}

/// Afterwards `data` on rank r > 0 holds the sum over the ranks before r, with the bits of the
/// sequential sum; that of rank 0 stays as it was.
template <channel Channel, buffer Data, class Op>
requires lending_transport<typename Channel::transport_type> task<> exscan(Channel net, Data data,
                                                                           Op op) {
  const int last = net.size() - 1;
  const auto all_but_last = [&](int rank) { return rank < last; };
  const auto all_but_first = [](int rank) { return rank > 0; };
  const std::size_t longest = std::max(element_size(data), lending<Channel>::cached);
  const scratch memory(net.scratch_bytes(2 * longest));
  const auto sum_up = [&](const auto& of, std::size_t at, std::size_t count) {
    Data before = of(0).subspan(at, count);
    for (int rank = 1; rank <= last; ++rank) {
      const Data own = of(rank).subspan(at, count);
      const Data next = placed(data, memory.data() + (rank % 2 != 0 ? 0 : longest), count);
      if (rank < last) net.reduce(next, before, own, op);
      net.copy(bytes(own), bytes(before));
      before = next;
    }
  };
  co_await prefixes(net, data, all_but_last, all_but_first, sum_up);
}

}  // namespace colls::direct
