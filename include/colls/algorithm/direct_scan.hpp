// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_scans: prefix sums where ranks see each other's memory: each makes those of a chunk for
// all.

#include <colls/algorithm/direct_short.hpp>
#include <colls/algorithm/direct_thresholds.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/shared_window.hpp>
#include <colls/base/partition.hpp>

namespace colls::direct {

/// Runs `piece(lane, part of data)` for all of `data`, two pieces at a time.
template <channel Channel, buffer Data, class Piece>
task<> in_unlent_pieces(Channel net, Data data, Piece piece) {
  const int pieces = pieces_of(unlent_piece, data);
  const partition parts(data.size(), pieces);
  const auto one = [=](Channel lane, int k) {
    return piece(lane, data.subspan(parts.offset(k), parts.count(k)));
  };
  return in_lanes(net, net.lanes(), pieces, one);
}

/// Each rank makes the prefixes of one chunk for all, where the parts lie: `sum_up(of, at, count)`
/// replaces by sums `count` elements from `at` on of the parts `of(rank)`. Where some rank does not
/// lend its buffer to all, they go down a chain: `hop(lane, piece)`.
template <channel Channel, buffer Data, class SumUp, class Hop>
task<> prefixes(Channel net, Data data, SumUp sum_up, Hop hop) {
  if (net.size() == 1) co_return;
  const int mine = net.rank();
  lending<Channel> peers(net, bytes(data), const_bytes());
  peers.lend_to_all_or_none();
  const Channel down = net.lane(net.lanes());
  if (!peers.lends_in(mine == 0 ? 1 : 0)) {
    // Who lends nothing knows how it will go.
    co_await when_all(peers.begin(bytes(data).size), in_unlent_pieces(down, data, hop));
    peers.leave_untouched();
    co_return;
  }
  co_await peers.begin(bytes(data).size);
  if (!peers.all_lend()) {
    peers.leave_untouched();
    co_await in_unlent_pieces(down, data, hop);
    co_return;
  }
  const partition parts(data.size(), net.size());
  const std::size_t offset = parts.offset(mine) * element_size(data);
  const std::size_t n = parts.count(mine);
  const auto of = [&](int rank) {
    if (rank == mine) return chunks(data, parts)[mine];
    return placed(data, peers.in_of(rank) + offset, n);
  };
  const auto work = [&](std::size_t at, std::size_t count) { sum_up(of, at, count); };
  co_await peers.in_pieces(n, element_size(data), work);
  co_await peers.end();
}

/// Afterwards `data` on rank r holds the sum over ranks 0 to r, with the bits of the sequential
/// sum.
template <channel Channel, buffer Data, class Op>
task<> scan_lent(Channel net, Data data, Op op) {
  const auto sum_up = [&](const auto& of, std::size_t at, std::size_t count) {
    Data before = of(0).subspan(at, count);
    for (int rank = 1; rank < net.size(); ++rank) {
      const Data own = of(rank).subspan(at, count);
      net.reduce(own, before, own, op);
      before = own;
    }
  };
  const auto hop = [&](Channel lane, Data piece) { return linear::scan(lane, piece, op); };
  co_await prefixes(net, data, sum_up, hop);
}
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> scan(Channel net, Data data, Op op) {
  if (goes_whole(collective::scan, bytes(data).size, net.size())) {
    return in_one_step<whole::scan<Channel, Data, Op>>(net, data, data, op);
  }
  return scan_lent(net, data, op);
}

/// Afterwards `data` on rank r > 0 holds the sum over the ranks before r, with the bits of the
/// sequential sum; that of rank 0 stays as it was.
template <channel Channel, buffer Data, class Op>
task<> exscan_lent(Channel net, Data data, Op op) {
  const int last = net.size() - 1;
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
  const auto hop = [&](Channel lane, Data piece) { return linear::exscan(lane, piece, op); };
  co_await prefixes(net, data, sum_up, hop);
}
template <channel Channel, buffer Data, class Op>
  requires lending_transport<typename Channel::transport_type>
task<> exscan(Channel net, Data data, Op op) {
  if (goes_whole(collective::exscan, bytes(data).size, net.size())) {
    return in_one_step<whole::exscan<Channel, Data, Op>>(net, data, op);
  }
  return exscan_lent(net, data, op);
}

}  // namespace colls::direct
