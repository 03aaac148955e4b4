// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// ring: collectives in which each rank sends only to the next rank, for long buffers. No algorithm
// can send fewer bytes. See Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters
// of workstations" (2009).
//
// Each chunk is divided into segments. Several segments are in flight at a time, one in each lane.
// A lane is a channel whose messages are separate from those of other lanes. A function that uses
// only one lane handles one segment of each chunk as if this segment were the whole chunk. Below, p
// is the number of ranks.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern.hpp>

namespace colls::ring {

/// Sums each chunk on its way around the ring, which begins at the rank after the chunk's rank and
/// ends at the chunk's rank. `sum_of(step, chunk)` returns the buffer for the partial sum that this
/// rank computes in the round `step`; `chunk` is its own part of that sum. Afterwards the buffer of
/// the last round holds chunk r of the sum of `in` over all ranks, on rank r. Takes p-1 rounds, in
/// which a rank sends (p-1)/p of the buffer in total. Sends and receives only on the lane of `net`.
/// `parts` may describe one segment of each chunk instead of whole chunks (see
/// `partition::segment`).
template <channel Channel, buffer Data, class Op, class SumOf>
task<> reduce_chunks(Channel net, Data in, partition parts, Op op, SumOf sum_of) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks chunk(in, parts);
  Data partial = chunk[ring.behind(1)];
  for (int step = 1; step < net.size(); ++step) {
    const int next = ring.behind(step + 1);
    const Data sum = sum_of(step, next);
    co_await when_all(net.send(ring.next, bytes(partial)),
                      net.recv_reduce(ring.prev, chunk[next], sum, op, incoming::left));
    partial = sum;
  }
}

/// Sends each chunk of `data` once around the ring, beginning at the rank that holds the chunk.
/// Sends and receives only on the lane of `net`.
template <channel Channel, buffer Data>
task<> gather_chunks(Channel net, Data data, partition parts) {
  const pattern::ring ring(net.rank(), net.size());
  const chunks chunk(data, parts);
  for (int step = 1; step < net.size(); ++step) {
    co_await when_all(net.send(ring.next, bytes(chunk[ring.behind(step - 1)])),
                      net.recv(ring.prev, bytes(chunk[ring.behind(step)])));
  }
}

/// Takes 2(p-1) rounds. In total, each rank sends 2(p-1)/p times the size of the buffer. No
/// all_reduce can send fewer bytes.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::ring> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const partition parts(out.size(), net.size());
    const int segments = net.segments(parts.longest() * element_size(out));
    const auto piece = [=](Channel lane, int k) -> task<> {
      const partition part = parts.segment(k, segments);
      const chunks sums(out, part);
      if (lane.size() == 1) lane.copy(bytes(sums[0]), bytes(chunks(in, part)[0]));
      // Phase 1, reduce_scatter: partial sums lie in their chunks of `out`.
      const auto chunk_of_out = [sums](int, int chunk) { return sums[chunk]; };
      co_await reduce_chunks(lane, in, part, op, chunk_of_out);
      // Phase 2, all_gather: each chunk of the sum goes around the ring.
      co_await gather_chunks(lane, out, part);
    };
    co_await run_in_lanes(net, net.width(), segments, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.ring(choice, true) + model.ring(choice, false);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.chunk_bytes(); }
};
inline constexpr all_reduce_algorithm all_reduce;

/// Takes p-1 rounds. In each round, every rank sends one chunk to the next rank. Partial sums lie
/// alternately in two scratch buffers, the last one in `out`.
struct reduce_scatter_algorithm : built_in<collective::reduce_scatter, algorithm::ring> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, partition parts, Op op) {
    const int segments = net.segments(parts.longest() * element_size(in));
    const std::size_t start = parts.offset(net.rank());
    const auto piece = [=](Channel lane, int k) -> task<> {
      const partition part = parts.segment(k, segments);
      const int rounds = lane.size() - 1;
      const Data result = out.subspan(part.offset(lane.rank()) - start, part.count(lane.rank()));
      if (rounds == 0) lane.copy(bytes(result), bytes(chunks(in, part)[0]));
      const scratch even = lane.scratch_like(in, rounds > 2 ? part.longest() : 0);
      const scratch odd = lane.scratch_like(in, rounds > 1 ? part.longest() : 0);
      const auto alternating = [&](int step, int chunk) {
        const scratch& memory = step % 2 == 0 ? even : odd;
        return step == rounds ? result : typed_view(in, memory.data(), part.count(chunk));
      };
      co_await reduce_chunks(lane, in, part, op, alternating);
    };
    co_await run_in_lanes(net, net.width(), segments, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.ring(choice, true);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.chunk_bytes(); }
};
inline constexpr reduce_scatter_algorithm reduce_scatter;

/// Takes p-1 rounds. In each round, every rank sends one chunk to the next rank.
struct all_gather_algorithm : built_in<collective::all_gather, algorithm::ring> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    const int segments = net.segments(parts.longest() * element_size(out));
    net.copy(bytes(chunks(out, parts)[net.rank()]), bytes(in));
    const auto piece = [=](Channel lane, int k) {
      return gather_chunks(lane, out, parts.segment(k, segments));
    };
    co_await run_in_lanes(net, net.width(), segments, piece);
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return model.ring(choice, false);
  }
  static constexpr auto segmented_bytes(const loggp_model& model) { return model.chunk_bytes(); }
};
inline constexpr all_gather_algorithm all_gather;

}  // namespace colls::ring
