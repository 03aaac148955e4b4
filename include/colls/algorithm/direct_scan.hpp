// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// direct_scan: scan and exscan (prefix sums) for ranks that access each other's memory. The vector
// is divided into one chunk per rank. Each rank computes its chunk of the results of all ranks.

#include <colls/algorithm/direct_short.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/shared_window.hpp>

namespace colls::direct {

/// Cuts `data` into pieces and runs `scan_piece(lane, piece)` for each piece. Up to `net.lanes()`
/// of these calls run concurrently. `lane` is a channel that keeps the messages of one call apart
/// from those of the others.
template <channel Channel, buffer Data, class ScanPiece>
task<> scan_in_pieces(Channel net, Data data, ScanPiece scan_piece) {
  const int pieces = pieces_of(scan_chain_piece, data);
  const partition parts(data.size(), pieces);
  const auto piece = [=](Channel lane, int k) {
    return scan_piece(lane, data.subspan(parts.offset(k), parts.count(k)));
  };
  return run_in_lanes(net, net.lanes(), pieces, piece);
}

/// Replaces `data` on every rank with the prefix sum for that rank.
///
/// If every rank exposes its buffer to all other ranks, each rank computes one chunk of the prefix
/// sums for all ranks, and writes it directly to the buffers of all ranks. To do so, the rank calls
/// `scan_ranks(part, position, count)` for each piece of its chunk. `part(r)` is the chunk in the
/// buffer of rank r. The piece begins at element `position` of the chunk and has `count` elements.
/// For every rank r, `scan_ranks` must replace the piece of `part(r)` with the prefix sum for rank
/// r.
///
/// If some rank does not expose its buffer, each rank calls `scan_piece(lane, piece)` for each
/// piece of `data` instead. `scan_piece` must replace the piece with its prefix sum, and must
/// exchange the data by messages on the channel `lane`.
template <channel Channel, buffer Data, class ScanRanks, class ScanPiece>
task<> prefix_sums(Channel net, Data data, ScanRanks scan_ranks, ScanPiece scan_piece) {
  if (net.size() == 1) co_return;
  const int own_rank = net.rank();
  shared_window<Channel> window(net, bytes(data), const_bytes());
  window.expose_to_all_or_none();
  const Channel chain = net.lane(net.lanes());
  if (!window.exposes_in(own_rank == 0 ? 1 : 0)) {
    // This rank does not expose its buffer, so all ranks will exchange the data by messages.
    // Therefore this rank starts the scan without waiting for the descriptors of its peers.
    co_await when_all(window.begin(bytes(data).size), scan_in_pieces(chain, data, scan_piece));
    window.end_unused();
    co_return;
  }
  co_await window.begin(bytes(data).size);
  if (!window.all_expose()) {
    window.end_unused();
    co_await scan_in_pieces(chain, data, scan_piece);
    co_return;
  }
  const partition parts(data.size(), net.size());
  const std::size_t offset = parts.offset(own_rank) * element_size(data);
  const std::size_t n = parts.count(own_rank);
  const auto part = [&](int rank) {
    if (rank == own_rank) return chunks(data, parts)[own_rank];
    return typed_view(data, window.remote_in(rank) + offset, n);
  };
  const auto work = [&](std::size_t position, std::size_t count) {
    scan_ranks(part, position, count);
  };
  co_await window.for_each_piece(n, element_size(data), work);
  co_await window.end();
}

/// Implements `scan` for vectors that are not short.
template <channel Channel, buffer Data, class Op>
task<> scan_long(Channel net, Data data, Op op) {
  const auto scan_ranks = [&](const auto& part, std::size_t position, std::size_t count) {
    Data before = part(0).subspan(position, count);
    for (int rank = 1; rank < net.size(); ++rank) {
      const Data own = part(rank).subspan(position, count);
      net.reduce(own, before, own, op);
      before = own;
    }
  };
  const auto scan_piece = [&](Channel lane, Data piece) {
    return linear::scan.run(lane, piece, piece, op);
  };
  co_await prefix_sums(net, data, scan_ranks, scan_piece);
}
/// Short inputs are sent to all higher ranks.
struct scan_algorithm : direct_short::built_in_direct<collective::scan> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, Data out, Op op) {
    if (is_short_vector(operation, bytes(in).size, net.size())) {
      return run_frameless<direct_short::scan<Channel, Data, Op>>(net, in, out, op);
    }
    net.copy(bytes(out), bytes(in));
    return scan_long(net, out, op);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::scan<Channel, any_buffer, any_op>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    const auto p = model.number(model.ranks());
    if (is_short(model)) {
      auto sum = model.reduced(model.batch(model.mesh(n), n), (p - 1) * n);
      sum.messages /= 2;
      sum.batched /= 2;
      sum.bytes /= 2;
      return sum;
    }
    if (model.has_windows()) {
      auto sum = model.descriptor_exchange() + model.window_access_by_all(2 * n);
      // All ranks write to every buffer, so a rank that reads a buffer gets many cache lines from
      // the caches of other cores. The factor `p / 2` models the cost of these transfers.
      sum.window_bytes = sum.window_bytes * p / 2;
      ++sum.time_slices;
      return sum;
    }
    return model.descriptor_exchange() +
           model.pipeline(n, p - 1, 1, {algorithm::direct, scan_chain_piece, 2}, true);
  }
};
inline constexpr scan_algorithm scan;

/// Implements `exscan` for vectors that are not short.
template <channel Channel, buffer Data, class Op>
task<> exscan_long(Channel net, Data data, Op op) {
  const int last = net.size() - 1;
  const std::size_t longest = std::max(element_size(data), shared_window<Channel>::piece_bytes);
  const scratch memory(net.scratch_bytes(2 * longest));
  const auto scan_ranks = [&](const auto& part, std::size_t position, std::size_t count) {
    Data before = part(0).subspan(position, count);
    for (int rank = 1; rank <= last; ++rank) {
      const Data own = part(rank).subspan(position, count);
      const Data next = typed_view(data, memory.data() + (rank % 2 != 0 ? 0 : longest), count);
      if (rank < last) net.reduce(next, before, own, op);
      net.copy(bytes(own), bytes(before));
      before = next;
    }
  };
  const auto scan_piece = [&](Channel lane, Data piece) {
    return linear::exscan.run(lane, piece, piece, op);
  };
  co_await prefix_sums(net, data, scan_ranks, scan_piece);
}
/// Short inputs are sent to all higher ranks.
struct exscan_algorithm : direct_short::built_in_direct<collective::exscan> {
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
    requires shared_window_transport<typename Channel::transport_type>
  static task<> run(Channel net, Data in, Data out, Op op) {
    if (is_short_vector(operation, bytes(in).size, net.size())) {
      return run_frameless<direct_short::exscan<Channel, Data, Op>>(net, in, out, op);
    }
    const Data data = net.rank() > 0 ? out : in;  // rank 0 gets no result
    net.copy(bytes(data), bytes(in));
    return exscan_long(net, data, op);
  }
  template <class Channel>
  using frameless = step_if_supported<Channel, direct_short::exscan<Channel, any_buffer, any_op>>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return scan.cost(model, choice);
  }
};
inline constexpr exscan_algorithm exscan;

}  // namespace colls::direct
