// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// whole: collectives of short vectors in one round. Each part goes to all who need it at once, and
// who needs a sum adds it up itself, in rank order.

#include <colls/algorithm/one_round.hpp>
#include <colls/algorithm/placed.hpp>
#include <colls/channel.hpp>
#include <colls/partition.hpp>

namespace colls::whole {

using one_round::all;
using one_round::only;
using one_round::round;
using one_round::share_upwards;
using one_round::share_with_all;

/// No input lies where the sum goes.
inline constexpr int apart = -1;

/// sum = parts[0] (+) parts[1] (+) ..., where `sum` may be part `aliased`; `second` gets the same
/// unless it is null. The parts before that one are added up in `spare`, unless all are at once.
template <channel Channel, buffer Data, class Op>
void add_up(const Channel& net, Data sum, std::span<const void*> parts, int aliased, void* spare,
            const Op& op, void* second = nullptr) {
  if (parts.size() == 1) {
    return net.copy(bytes(sum), {static_cast<const std::byte*>(parts[0]), bytes(sum).size});
  }
  if (aliased > 1 && !folds<Data>(op)) {
    const auto before = static_cast<std::size_t>(aliased);
    net.reduce(placed(sum, spare, sum.size()), parts.first(before), op);
    parts = parts.subspan(before - 1);
    parts[0] = spare;
  }
  net.reduce(sum, parts, op, second);
}
/// Leaves in `sum` the sum over the ranks before `ranks`, of which each has its part in its place
/// in `taken`, but this rank's is `own`. `sum` may be `own`.
template <channel Channel, buffer Data, class Op>
void add_up_taken(const Channel& net, Data own, std::byte* taken, int ranks, Data sum,
                  const Op& op) {
  const std::size_t size = bytes(own).size;
  detail::recycled_vector<const void*> parts(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    parts[static_cast<std::size_t>(rank)] =
        rank == net.rank() ? bytes(own).data : taken + static_cast<std::size_t>(rank) * size;
  }
  const bool in_place = net.rank() < ranks && own.data() == sum.data();
  add_up(net, sum, parts, in_place ? net.rank() : apart, taken, op);
}
/// Room for such parts.
template <channel Channel, buffer Data>
scratch room_for(const Channel& net, const Data& part, int ranks) {
  return net.scratch_bytes(ranks > 1 ? static_cast<std::size_t>(ranks) * bytes(part).size : 0);
}

/// Ends on no rank before all ranks have called it. p(p-1) empty messages.
template <channel Channel>
task<> barrier(Channel net) {
  co_await share_with_all(net, const_bytes(), nullptr);
}

/// Afterwards every rank holds the same sum in `out`, with the bits of the sequential sum; `in` is
/// only read, and may be `out`. p(p-1) messages of the whole input.
template <channel Channel, buffer Data, class Op>
task<> all_reduce(Channel net, Data in, Data out, Op op) {
  const scratch parts(room_for(net, in, net.size()));
  co_await share_with_all(net, bytes(in), parts.data());
  add_up_taken(net, in, parts.data(), net.size(), out, op);
}

/// Afterwards `out` of the root holds the sum, with the bits of the sequential sum; elsewhere `out`
/// is not looked at. `in` is only read; on the root it may be `out`. p-1 messages.
template <channel Channel, buffer Data, class Op>
task<> reduce(Channel net, Data in, Data out, int root, Op op) {
  if (net.rank() != root) {
    co_await round(net, round_gives::same(only(root), bytes(in)), round_takes());
    co_return;
  }
  const scratch parts(room_for(net, in, net.size()));
  const mutable_bytes zeroth{parts.data(), bytes(in).size};
  co_await round(net, round_gives(), round_takes::blocks(all(net), zeroth));
  add_up_taken(net, in, parts.data(), net.size(), out, op);
}

/// Afterwards rank r holds the finished chunk r in `out`, with the bits of the sequential sum; `in`
/// is only read, and `out` may be exactly this rank's chunk of it. p(p-1) messages of a chunk.
template <channel Channel, buffer Data, class Op>
task<> reduce_scatter(Channel net, Data in, Data out, partition parts, Op op) {
  const Data own = chunks(in, parts)[net.rank()];
  const scratch taken(room_for(net, own, net.size()));
  const mutable_bytes zeroth{taken.data(), bytes(own).size};
  co_await round(net, round_gives::chunks(all(net), bytes(in), parts, element_size(in)),
                 round_takes::blocks(all(net), zeroth));
  add_up_taken(net, own, taken.data(), net.size(), out, op);
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r, with the bits of the sequential
/// sum. Each rank sends to all after it: p(p-1)/2 messages.
template <channel Channel, buffer Data, class Op>
task<> scan(Channel net, Data data, Op op) {
  const int mine = net.rank();
  const scratch parts(room_for(net, data, mine + 1));
  co_await share_upwards(net, bytes(data), parts.data());
  add_up_taken(net, data, parts.data(), mine + 1, data, op);
}
/// Afterwards `data` on rank r > 0 holds the sum over the ranks before r, with the bits of the
/// sequential sum; that of rank 0 stays as it was. p(p-1)/2 messages.
template <channel Channel, buffer Data, class Op>
task<> exscan(Channel net, Data data, Op op) {
  const int mine = net.rank();
  const scratch parts(room_for(net, data, mine + 1));
  co_await share_upwards(net, bytes(data), parts.data());
  if (mine > 0) add_up_taken(net, data, parts.data(), mine, data, op);
}

/// Afterwards chunk r of `out` on every rank holds `in` of rank r; `in` is only read, and may be
/// this rank's chunk of `out`. p(p-1) messages.
template <channel Channel, buffer Data>
task<> all_gather(Channel net, Data in, Data out, partition parts) {
  co_await round(net, round_gives::same(all(net), bytes(in)),
                 round_takes::chunks(all(net), bytes(out), parts, element_size(out)));
  net.copy(bytes(chunks(out, parts)[net.rank()]), bytes(in));
}

/// Afterwards `data` of every rank holds what `data` of the root held. p-1 messages.
template <channel Channel, buffer Data>
task<> broadcast(Channel net, Data data, int root) {
  if (net.rank() == root) {
    co_await round(net, round_gives::same(all(net), bytes(data)), round_takes());
  } else {
    co_await round(net, round_gives(), round_takes::same(only(root), bytes(data)));
  }
}

/// Afterwards chunk r of `data` on the root holds `mine` of rank r; elsewhere `data` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages.
template <channel Channel, buffer Data>
task<> gather(Channel net, Data mine, Data data, partition parts, int root) {
  if (net.rank() == root) {
    net.copy(bytes(chunks(data, parts)[root]), bytes(mine));
    co_await round(net, round_gives(),
                   round_takes::chunks(all(net), bytes(data), parts, element_size(mine)));
  } else {
    co_await round(net, round_gives::same(only(root), bytes(mine)), round_takes());
  }
}

/// Afterwards `mine` on rank r holds chunk r of `data` on the root; elsewhere `data` is not looked
/// at. On the root `mine` may be exactly its chunk. p-1 messages.
template <channel Channel, buffer Data>
task<> scatter(Channel net, Data data, Data mine, partition parts, int root) {
  if (net.rank() == root) {
    net.copy(bytes(mine), bytes(chunks(data, parts)[root]));
    co_await round(net, round_gives::chunks(all(net), bytes(data), parts, element_size(mine)),
                   round_takes());
  } else {
    co_await round(net, round_gives(), round_takes::same(only(root), bytes(mine)));
  }
}

/// Afterwards chunk i of `out` holds the chunk of `in` that rank i had for this rank; `in` is only
/// read and does not overlap `out`. p(p-1) messages.
template <channel Channel, buffer Data>
task<> all_to_all(Channel net, Data in, partition in_parts, Data out, partition out_parts) {
  const int mine = net.rank();
  co_await round(net, round_gives::chunks(all(net), bytes(in), in_parts, element_size(in)),
                 round_takes::chunks(all(net), bytes(out), out_parts, element_size(out)));
  net.copy(bytes(chunks(out, out_parts)[mine]), bytes(chunks(in, in_parts)[mine]));
}

}  // namespace colls::whole
