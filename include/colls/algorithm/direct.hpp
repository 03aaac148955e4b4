// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct: nothing is sent but where the data lies. For ranks that see each other's memory; what a
// rank does not lend goes by messages, the same way.

#include <colls/algorithm/direct_data_movement.hpp>
#include <colls/algorithm/direct_short.hpp>
#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/shared_window.hpp>
#include <colls/base/partition.hpp>

namespace colls::direct {

using whole::add_up;
using whole::apart;

/// Leaves in `sum` the sum in rank order of a chunk: `own` here, `offset` elements into the input
/// of every other rank. The input of rank `aliased` lies where `sum` does. One pass over all
/// inputs, piece by piece; the same goes to `second` unless that is null, and each piece is
/// followed by `deliver(first, count)` while it is in the cache.
template <channel Channel, buffer Data, class Op, class Deliver>
task<> fold_seen(Channel net, lending<Channel>& peers, Data own, std::size_t offset, Data sum,
                 int aliased, Op op, std::byte* second, Deliver deliver) {
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
    std::byte* const also = second == nullptr ? nullptr : second + at * element;
    add_up(net, sum.subspan(at, n), parts, aliased, memory.data(), op, also);
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

/// `fold_seen` where this rank sees all inputs, else `fold_mixed`. What was read of a peer but
/// `root` is not read again.
template <channel Channel, buffer Data, class Op>
task<> fold(Channel net, lending<Channel>& peers, Data own, std::size_t offset, Data sum,
            int aliased, Op op, int root) {
  if (!sees_all(net, peers)) return fold_mixed(net, peers, own, offset, sum, op);
  const auto leave = [net, &peers, offset, root, element = element_size(own)](std::size_t at,
                                                                              std::size_t n) {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer == net.rank() || peer == root) continue;
      peers.leave(peer, (offset + at) * element, n * element);
    }
  };
  return fold_seen(net, peers, own, offset, sum, aliased, op, nullptr, leave);
}

/// Whether inputs of so many bytes are read in memory of a rank's own: in shorter ones a word about
/// each takes longer, and the sums of longer ones have left the cache when a root reads them.
inline bool is_read_by_all(std::size_t bytes) { return bytes >= 64 * 1024; }
inline bool is_read_at_root(std::size_t bytes, int ranks) {
  return static_cast<std::size_t>(ranks - 1) * bytes > 128 * 1024;
}

/// Leaves in `sum` the sum in rank order of `own` and of what every other rank has `offset`
/// elements into its input; says how many elements it has made before some could not be read.
/// Inputs come into the cache a window of each at a time.
template <channel Channel, buffer Data, class Op>
task<std::size_t> fold_windows(Channel net, lending<Channel>& peers, Data own, std::size_t offset,
                               Data sum, int aliased, Op op) {
  const std::size_t element = element_size(own);
  const auto others = static_cast<std::size_t>(net.size() - 1);
  const std::size_t window =
      std::min(own.size(), elements_in(lending<Channel>::read_at_once / others, element));
  const scratch memory(net.scratch_bytes((others + (aliased > 1 ? 1 : 0)) * window * element));
  detail::recycled_vector<const void*> parts(others + 1);
  for (std::size_t at = 0; at < own.size(); at += window) {
    const std::size_t n = std::min(window, own.size() - at);
    std::byte* free = memory.data();
    for (int rank = 0; rank < net.size(); ++rank) {
      const bool mine = rank == net.rank();
      const Data part = mine ? own.subspan(at, n) : placed(own, free, n);
      parts[static_cast<std::size_t>(rank)] = part.data();
      if (mine) continue;
      if (!co_await peers.copy_some(part, rank, (offset + at) * element)) co_return at;
      free += window * element;
    }
    add_up(net, sum.subspan(at, n), parts, aliased, free, op);
    if (peers.is_turn_over(n * element)) co_await peers.others_turn();
  }
  co_return own.size();
}

/// The same to the end, when nobody is in what another one lends any more. What this rank does not
/// see, or cannot read, is sent.
template <channel Channel, buffer Data, class Op>
task<> fold_read(Channel net, lending<Channel>& peers, Data own, std::size_t offset, Data sum,
                 int aliased, Op op) {
  const std::size_t element = element_size(own);
  std::size_t done = 0;
  if (sees_all(net, peers)) {
    if (peers.reads()) {
      done = co_await fold_windows(net, peers, own, offset, sum, aliased, op);
    } else {
      co_await fold(net, peers, own, offset, sum, aliased, op, net.rank());
      done = own.size();
    }
    if (done == own.size()) {
      co_await peers.end();
      co_return;
    }
  }
  const whole::room taken(net, own, net.size());
  const auto part = [&](int rank) {
    const std::size_t before = static_cast<std::size_t>(rank) * bytes(own).size;
    return rank == net.rank() ? own : placed(own, taken.data() + before, own.size());
  };
  const auto unseen = [&](int peer) { return !peers.sees_in(peer); };
  const auto take = [&](int peer) { return net.recv(peer, bytes(part(peer))); };
  const auto copy = [&]() -> task<> {
    for (int peer = 0; peer < net.size(); ++peer) {
      if (peer != net.rank() && !unseen(peer)) {
        co_await peers.copy_in(part(peer), peer, offset * element);
      }
    }
  };
  co_await when_all(peers.with_those(unseen, take), net.beside(copy()));
  co_await peers.end();
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(net.size()));
  for (int rank = 0; rank < net.size(); ++rank) {
    parts[static_cast<std::size_t>(rank)] = bytes(part(rank)).data + done * element;
  }
  std::byte* const spare = taken.data() + static_cast<std::size_t>(net.rank()) * bytes(own).size;
  add_up(net, sum.subspan(done, own.size() - done), parts, aliased, spare, op);
}

/// This rank's chunk of `in` goes to whoever does not see it.
template <channel Channel, buffer Data>
task<> give_chunks(Channel net, lending<Channel>& peers, Data in, partition parts) {
  const chunks chunk(in, parts);
  const auto blind = [&](int peer) { return !peers.lends_in(peer); };
  const auto give = [&](int peer) { return net.send(peer, bytes(chunk[peer])); };
  co_await peers.with_those(blind, give);
}

/// The sum of this rank's chunk, and then to every rank's `out`. `lent`: peers work in this one.
template <channel Channel, buffer Data, class Op>
task<> sum_for_all(Channel net, Channel results, lending<Channel>& peers, Data in, Data out,
                   bool lent, partition parts, Op op) {
  const std::size_t offset = parts.offset(net.rank());
  const Data own = chunks(in, parts)[net.rank()];
  const Data sum = chunks(out, parts)[net.rank()];
  const std::size_t element = element_size(out);
  const auto seen_from = [&](int peer) {
    while (peer < net.size() && (peer == net.rank() || !peers.sees_out(peer))) ++peer;
    return peer;
  };
  const int first = seen_from(0);
  int next = first;  // the pass that adds up serves those before it
  const auto spread = [&](std::size_t at, std::size_t n) {
    for (int peer = next; peer < net.size(); peer = seen_from(peer + 1)) {
      const Data there = placed(sum, peers.out_of(peer) + (offset + at) * element, n);
      net.copy(bytes(there), bytes(sum.subspan(at, n)));
    }
  };
  if (sees_all(net, peers)) {
    next = seen_from(first + 1);
    if (first == net.size() || lent || in.data() == out.data()) {
      const int aliased = in.data() == out.data() ? net.rank() : apart;
      std::byte* const second =
          first < net.size() ? peers.out_of(first) + offset * element : nullptr;
      co_await fold_seen(net, peers, own, offset, sum, aliased, op, second, spread);
    } else {
      // A copy does not read the lines that it writes whole, as a sum does: nobody had them here.
      const Data there = placed(sum, peers.out_of(first) + offset * element, sum.size());
      const auto home = [&](std::size_t at, std::size_t n) {
        net.copy(bytes(sum.subspan(at, n)), bytes(there.subspan(at, n)));
        spread(at, n);
      };
      const int aliased = peers.is_in_place(first) ? first : apart;
      co_await fold_seen(net, peers, own, offset, there, aliased, op, nullptr, home);
    }
  } else {
    co_await fold_mixed(net, peers, own, offset, sum, op);
    co_await peers.in_pieces(sum.size(), element, spread);
  }
  const auto blind = [&](int peer) { return !peers.sees_out(peer); };
  const auto give = [&](int peer) { return results.send(peer, bytes(sum)); };
  co_await peers.with_those(blind, give);
}

/// Afterwards every rank holds the same sum in `out`, with the bits of the sequential sum; `in` is
/// only read, and may be `out`. Each rank adds up one chunk, reading it where it lies, and writes
/// it to all: each input is read once and each output written once. What a rank does not lend it
/// copies to a desk for those who read it there, and takes the sums from the desk. Where peers see
/// neither, 2(p-1)/p of the buffer is sent by each rank.
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> all_reduce_in_chunks(Channel net, Data in, Data out, Op op) {
  const partition parts(out.size(), net.size());
  const chunks inputs(in, parts);
  const chunks sums(out, parts);
  const desk<Channel> copies(net, bytes(in), bytes(out));
  lending<Channel> peers(net, copies.in(), copies.out());
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peers.lends_in(peer)) copies.bring(net, bytes(inputs[peer]));
  }
  co_await peers.begin(bytes(in).size);
  const Channel results = net.lane(net.width());
  const auto blind = [&](int peer) { return !peers.lends_out(peer); };
  const auto take = [&](int peer) { return results.recv(peer, bytes(sums[peer])); };
  co_await when_all(
      net.beside(give_chunks(net, peers, in, parts)),
      net.beside(sum_for_all(net, results, peers, in, out, !copies.has_out(), parts, op)),
      peers.with_those(blind, take));
  co_await peers.end();
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peers.lends_out(peer)) copies.fetch(net, bytes(sums[peer]));
  }
}
/// Piece by piece of what a desk holds.
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> all_reduce_in_pieces(Channel net, Data in, Data out, Op op) {
  const std::size_t chunk = partition(in.size(), net.size()).longest() * element_size(in);
  const int count = std::max(pieces_of(desk<Channel>::size, in), net.segments(chunk));
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
  requires lending_transport<typename Channel::transport_type>
task<> all_reduce_apart(Channel net, Data in, Data out, Op op) {
  if (goes_whole(collective::all_reduce, bytes(in).size, net.size())) {
    return in_one_step<whole::all_reduce<Channel, Data, Op>>(net, in, out, op);
  }
  return all_reduce_in_pieces(net, in, out, op);
}

/// The same in place.
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> all_reduce(Channel net, Data data, Op op) {
  return all_reduce_apart(net, data, data, op);
}

/// Afterwards rank r holds the finished chunk r in `out`, with the bits of the sequential sum; `in`
/// is only read, and `out` may be exactly this rank's chunk of it. Every rank reads its chunk where
/// it lies, or is sent it.
template <channel Channel, buffer Data, class Op>
task<> reduce_scatter_lent(Channel net, Data in, Data out, partition parts, Op op) {
  if (net.size() == 1) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
  const bool reads = is_read_by_all(bytes(in).size);
  const auto copies = desk<Channel>::of_many(net, bytes(in));
  lending<Channel> peers(net, copies.in(), copies.spent(),
                         reads ? readers::all_to_add : readers::nobody);
  if (reads) peers.lend_to_all_or_none();
  const chunks chunk(in, parts);
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peers.lends_in(peer)) copies.bring(net, bytes(chunk[peer]));
  }
  co_await peers.begin(bytes(in).size);
  const std::size_t start = parts.offset(net.rank());
  if (peers.all_read([&](int peer) { return bytes(chunk[peer]); })) {
    const Data own = chunk[net.rank()];
    const int aliased = own.data() == out.data() ? net.rank() : apart;
    co_await fold_read(net, peers, own, start, out, aliased, op);
    co_return;
  }
  const int segments = net.segments(parts.longest() * element_size(in));
  const auto piece = [&](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    const std::size_t offset = part.offset(lane.rank());
    const Data own = chunks(in, part)[lane.rank()];
    const Data sum = out.subspan(offset - start, own.size());
    const int aliased = own.data() == sum.data() ? lane.rank() : apart;
    co_await when_all(lane.beside(give_chunks(lane, peers, in, part)),
                      lane.beside(fold(lane, peers, own, offset, sum, aliased, op, lane.rank())));
  };
  co_await in_lanes(net, net.width(), segments, piece);
  co_await peers.end();
}
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  if (goes_whole(collective::reduce_scatter, bytes(in).size, net.size())) {
    return in_one_step<whole::reduce_scatter<Channel, Data, Op>>(net, in, out, parts, op);
  }
  return reduce_scatter_lent(net, in, out, parts, op);
}

/// Afterwards `out` of the root holds the sum, with the bits of the sequential sum; elsewhere `out`
/// is not looked at. `in` is only read; on the root it may be `out`. The root adds up what it sees,
/// and is sent the rest.
template <channel Channel, buffer Data, class Op>
task<> reduce_at_root(Channel net, Data in, Data out, int root, Op op) {
  const bool at_root = net.rank() == root;
  const auto lent = [&](int peer) {
    return !at_root && peer == root ? const_bytes(bytes(in)) : const_bytes();
  };
  const auto nothing = [](int) { return const_bytes(); };
  const bool reads = is_read_at_root(bytes(in).size, net.size());
  lending<Channel> peers(net, lent, nothing, reads ? readers::all_to_add : readers::nobody);
  const auto extent = [&](int) { return bytes(in).size; };
  constexpr pattern::rank_range nobody{0, 0};
  co_await peers.begin(extent, at_root ? nobody : one_round::only(root),
                       at_root ? one_round::all(net) : nobody);
  if (at_root) {
    const int aliased = in.data() == out.data() ? root : apart;
    if (reads) {
      co_await fold_read(net, peers, in, 0, out, aliased, op);
      co_return;
    }
    co_await fold(net, peers, in, 0, out, aliased, op, root);
  } else if (!peers.lends_in(root)) {
    co_await net.send(root, bytes(in));
  }
  co_await peers.end();
}

/// Afterwards `out` of the root holds the sum, with the bits of the sequential sum; elsewhere `out`
/// is not looked at. `in` is only read; on the root it may be `out`. Each rank adds up one chunk,
/// in the root's memory if it sees that, else it sends it; where there are two, and the root does
/// not see the other's, that one sends its whole input.
template <channel Channel, buffer Data, class Op>
task<> reduce_lent(Channel net, Data in, Data out, int root, Op op) {
  const bool at_root = net.rank() == root;
  if (net.size() == 1) {
    net.copy(bytes(out), bytes(in));
    co_return;
  }
  const auto copies =
      desk<Channel>::of_many(net, bytes(in), at_root ? bytes(out) : mutable_bytes());
  lending<Channel> peers(net, copies.in(), at_root ? copies.out() : copies.spent());
  const partition parts(in.size(), net.size());
  const chunks chunk(in, parts);
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peers.lends_in(peer)) copies.bring(net, bytes(chunk[peer]));
  }
  co_await peers.begin(bytes(in).size);
  const std::size_t element = element_size(in);
  // Of two ranks the root has less to do than to send its half and to take in the sum.
  const auto root_reads = [&] { return at_root ? peers.sees_in(1 - root) : peers.lends_in(root); };
  if (net.size() == 2 && !root_reads()) {
    co_await linear::reduce(net, in, out, root, op);
    co_await peers.end();
    co_return;
  }
  const int segments = net.segments(parts.longest() * element);
  const auto piece = [&](Channel lane, int k) -> task<> {
    const partition part = parts.segment(k, segments);
    const Channel results = lane.lane(lane.width());
    const std::size_t offset = part.offset(lane.rank());
    const Data own = chunks(in, part)[lane.rank()];
    if (!at_root && sees_all(lane, peers) && peers.sees_out(root)) {
      const Data there = placed(own, peers.out_of(root) + offset * element, own.size());
      const int aliased = peers.is_in_place(root) ? root : apart;
      co_await when_all(lane.beside(give_chunks(lane, peers, in, part)),
                        lane.beside(fold(lane, peers, own, offset, there, aliased, op, root)));
      co_return;
    }
    const scratch memory(lane.scratch_like(own, at_root ? 0 : own.size()));
    const Data sum = at_root ? chunks(out, part)[root] : placed(own, memory.data(), own.size());
    const int aliased = own.data() == sum.data() ? root : apart;
    const auto blind = [&](int peer) { return at_root && !peers.lends_out(peer); };
    const auto take = [&](int peer) { return results.recv(peer, bytes(chunks(out, part)[peer])); };
    co_await when_all(lane.beside(give_chunks(lane, peers, in, part)),
                      lane.beside(fold(lane, peers, own, offset, sum, aliased, op, root)),
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
  if (!at_root) co_return;
  for (int peer = 0; peer < net.size(); ++peer) {
    if (peers.lends_out(peer)) copies.fetch(net, bytes(chunks(out, parts)[peer]));
  }
}
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  if (goes_whole(collective::reduce, bytes(in).size, net.size())) {
    return in_one_step<whole::reduce<Channel, Data, Op>>(net, in, out, root, op);
  }
  if (goes_to_root(bytes(in).size, net.size())) return reduce_at_root(net, in, out, root, op);
  return reduce_lent(net, in, out, root, op);
}

}  // namespace colls::direct
