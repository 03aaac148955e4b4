// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recursive_doubling: collectives that take few rounds, for short buffers. In every round, a rank
// and its partner send each other all the data that they hold. Therefore the number of ranks whose
// data a rank holds doubles in every round. See Thakur, Rabenseifner, Gropp, "Optimization of
// collective communication operations in MPICH" (2005).
//
// Partial sums lie alternately in the caller's buffer and in a scratch buffer, because the old sum
// is still being sent to the partner while the new sum is written. Below, p is the number of ranks,
// and 2^k is the largest power of two that is not greater than p.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/last_arriver.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern.hpp>

namespace colls::recursive_doubling {

/// The sum is folded in rank order, so the operation need not commute. Takes k rounds, in each of
/// which a rank sends the whole buffer. If p is not a power of two, p - 2^k ranks do not take part
/// in these rounds. Each of them first sends its input to a neighbour, and receives the sum from
/// this neighbour at the end. This takes two more rounds.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::recursive_doubling> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const pattern::hypercube cube(net.rank(), net.size());
    if (cube.fold_dest >= 0) {
      co_await net.send(cube.fold_dest, bytes(in));
      co_await net.recv(cube.fold_dest, bytes(out));
      co_return;
    }
    Data sum = in;
    if (cube.fold_source >= 0) {
      co_await net.recv_reduce(cube.fold_source, in, out, op, incoming::left);
      sum = out;
    }
    const scratch memory = net.scratch_like(in, cube.rounds > 0 ? in.size() : 0);
    Data spare = typed_view(in, memory.data(), in.size());
    Data next = out;
    // The last sum lies in `out`, unless the first one does and must not be overwritten.
    if (cube.rounds % 2 != 0 && sum.data() != out.data()) std::swap(spare, next);
    for (int round = 0; round < cube.rounds; ++round) {
      co_await net.exchange_reduce(cube.partner(round), sum, spare, op);
      sum = spare;
      std::swap(spare, next);
    }
    net.copy(bytes(out), bytes(sum));
    if (cube.fold_source >= 0) co_await net.send(cube.fold_source, bytes(out));
  }
  /// Where all ranks run on one thread, the last rank to arrive computes the same sums.
  template <class Channel>
  using frameless =
      std::conditional_t<completion_barrier_transport<typename Channel::transport_type>,
                         last_arriver::all_reduce_step<Channel, any_buffer, any_op,
                                                       last_arriver::recursive_doubling_order>,
                         void>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    const std::uint64_t corners = std::uint64_t{1} << model.cube_rounds();
    const std::uint64_t folded = model.folded_ranks();
    const auto rounds = model.number(model.cube_rounds());
    const std::uint64_t messages = corners * rounds + 2 * folded;
    loggp::phase sum{messages, messages * n, 0, rounds * n};
    for (int bit = 0; bit < model.cube_rounds(); ++bit) sum.critical_path += model.cube_hop(n, bit);
    if (folded == 0) return sum;
    // `corners` ranks take part in the rounds. Each of the other ranks sends its vector to a
    // corner before the rounds, and receives the result from this corner after the rounds. A
    // chain of messages through all rounds can begin with a message to a corner and end with a
    // message from a corner only if there are more than `corners / 2` of these other ranks.
    const bool has_both = 2 * folded > corners;
    sum.critical_path += model.fold(n) + (has_both ? model.fold(n) : model.gap(n));
    return model.reduced(sum, n);
  }
};
inline constexpr all_reduce_algorithm all_reduce;

/// Takes k rounds. If p is a power of two, a rank sends (p-1)/p of the buffer in total. Otherwise
/// p - 2^k ranks do not take part in these rounds. Each of them first sends its chunk to a
/// neighbour, and receives the whole buffer from this neighbour at the end. This takes two more
/// rounds.
struct all_gather_algorithm : built_in<collective::all_gather, algorithm::recursive_doubling> {
  template <channel Channel, buffer Data>
  static task<> run(Channel net, Data in, Data out, partition parts) {
    const pattern::hypercube cube(net.rank(), net.size());
    const chunks chunk(out, parts);
    if (cube.fold_dest >= 0) {
      co_await net.send(cube.fold_dest, bytes(in));
      co_await net.recv(cube.fold_dest, bytes(out));
      co_return;
    }
    net.copy(bytes(chunk[net.rank()]), bytes(in));
    if (cube.fold_source >= 0) co_await net.recv(cube.fold_source, bytes(chunk[cube.fold_source]));
    for (int round = 0; round < cube.rounds; ++round) {
      const int partner = cube.partner(round);
      co_await when_all(net.send(partner, bytes(chunk[cube.held(round)])),
                        net.recv(partner, bytes(chunk[cube.partner_held(round)])));
    }
    if (cube.fold_source >= 0) co_await net.send(cube.fold_source, bytes(out));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.hypercube_chunks(0);
  }
};
inline constexpr all_gather_algorithm all_gather;

/// Computes the sum of the inputs of all ranks from rank 0 to this rank, of which `in` is this
/// rank's. Returns the buffer that holds the result: `in`, `first` or `second`. Never writes to
/// `in`, unless it is `first` or `second`.
template <channel Channel, buffer Data, class Op>
task<Data> running_sum(Channel net, Data in, Data first, Data second, Op op) {
  const pattern::prefix line(net.rank(), net.size());
  Data sum = in;
  Data spare = first;
  for (int round = 0; round < line.rounds; ++round) {
    const int dest = line.dest(round);
    const int source = line.source(round);
    if (source < 0) {
      if (dest >= 0) co_await net.send(dest, bytes(sum));
      continue;
    }
    if (dest >= 0) {
      co_await when_all(net.send(dest, bytes(sum)),
                        net.recv_reduce(source, sum, spare, op, incoming::left));
    } else {
      co_await net.recv_reduce(source, sum, spare, op, incoming::left);
    }
    sum = spare;
    spare = sum.data() == first.data() ? second : first;
  }
  co_return sum;
}

/// The sum is folded in rank order, so the operation need not commute. Takes ceil(log2 p) rounds,
/// in each of which a rank sends the whole buffer at most once. See Hillis, Steele, "Data parallel
/// algorithms" (1986).
struct scan_algorithm : built_in<collective::scan, algorithm::recursive_doubling> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const scratch memory = net.scratch_like(in, net.size() > 1 ? in.size() : 0);
    const Data spare = typed_view(in, memory.data(), in.size());
    const Data sum = co_await running_sum(net, in, spare, out, op);
    net.copy(bytes(out), bytes(sum));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    loggp::phase sum;
    for (int far = 1; far < model.ranks(); far *= 2) {
      sum.messages += model.number(model.ranks() - far);
      // A chain with a message in every round up to this one ends `2 * far - 1` ranks after the
      // rank at which it begins. If `2 * far` exceeds the number of ranks, there is no such chain.
      // This round is then the last one, and it adds only a gap (the time before a rank can send
      // again) to the critical path.
      sum.critical_path += 2 * far <= model.ranks()
                               ? model.shift_hop(n, far, 2 * far >= model.per_host())
                               : model.gap(n);
      sum.path_bytes += n;
    }
    sum.bytes = sum.messages * n;
    return sum;
  }
};
inline constexpr scan_algorithm scan;

/// The sum is folded in rank order. In the first round, every rank except the last sends its input
/// to the next rank. Then ranks 1 to p-1 do a scan of the inputs that they have received, in
/// ceil(log2(p-1)) further rounds.
struct exscan_algorithm : built_in<collective::exscan, algorithm::recursive_doubling> {
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
    if (next >= 0) {
      co_await when_all(net.send(next, bytes(in)), net.recv(prev, bytes(lower)));
    } else {
      co_await net.recv(prev, bytes(lower));
    }
    const Channel above_first = net.subset(1, 1, net.size() - 1, 0);
    const Data sum = co_await running_sum(above_first, lower, out, lower, op);
    net.copy(bytes(out), bytes(sum));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice& choice) {
    return scan.cost(model, choice);
  }
};
inline constexpr exscan_algorithm exscan;

}  // namespace colls::recursive_doubling
