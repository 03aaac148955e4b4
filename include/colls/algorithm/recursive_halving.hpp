// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// recursive_halving: reductions that take few rounds and send few bytes. In every round, a rank
// halves the vector that it still has to reduce. It sends one half to a partner, and adds the data
// from the partner to the other half. See Rabenseifner, "Optimization of collective reduction
// operations" (2004). Below, p is the number of ranks, and 2^k is the largest power of two that is
// not greater than p.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/typed_view.hpp>
#include <colls/base/pattern.hpp>

namespace colls::recursive_halving {

/// The operation must commute, because the inputs of distant ranks are summed before those of
/// neighbours. Takes k rounds. If p is a power of two, a rank sends (p-1)/p of the buffer in these
/// rounds. Otherwise p - 2^k ranks do not take part in these rounds. Each of them first sends its
/// whole input to a neighbour, and receives its chunk of the sum from this neighbour at the end.
struct reduce_scatter_algorithm
    : built_in<collective::reduce_scatter, algorithm::recursive_halving> {
  static constexpr algorithm_needs needs{.commutative = true};

  template <channel Channel, buffer Data, class Op>
    requires commutative_for<Op, element_t<Data>>
  static task<> run(Channel net, Data in, Data out, partition parts, Op op) {
    const pattern::hypercube cube(net.rank(), net.size());
    if (cube.fold_dest >= 0) {
      co_await net.send(cube.fold_dest, bytes(in));
      co_await net.recv(cube.fold_dest, bytes(out));
      co_return;
    }
    chunks sum(in, parts);
    if (net.size() == 1) net.copy(bytes(out), bytes(in));
    // At first, `sum` refers to the input. After this rank has received its first message, `sum`
    // refers to the partial sums in `work`. If a single chunk is left in the last round, this round
    // writes the sum of that chunk to `out` instead of `work`.
    const bool is_fold_dest = cube.fold_source >= 0;
    const pattern::rank_range summed =
        cube.held(is_fold_dest || cube.rounds < 1 ? cube.rounds : cube.rounds - 1);
    const std::size_t count = sum[summed].size();
    scratch memory = net.scratch_like(in, count);
    const chunks work(typed_view(in, memory.data(), count), parts, summed.first);
    if (is_fold_dest) {
      co_await net.recv_reduce(cube.fold_source, in, work[summed], op, incoming::left);
      sum = work;
    }
    for (int round = cube.rounds; round-- > 0;) {
      const pattern::rank_range keep = cube.held(round);
      const pattern::rank_range sent = cube.partner_held(round);
      const Data kept = keep.size() == 1 ? out : work[keep];
      const int partner = cube.partner(round);
      co_await when_all(net.send(partner, bytes(sum[sent])),
                        net.recv_reduce(partner, sum[keep], kept, op, incoming::left));
      sum = work;
    }
    if (!is_fold_dest) co_return;
    co_await net.send(cube.fold_source, bytes(sum[cube.fold_source]));
    net.copy(bytes(out), bytes(sum[net.rank()]));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    return model.reduced(model.hypercube_chunks(model.duration(n, model.net().reduce_per_kib)),
                         n - model.chunk_bytes());
  }
};
inline constexpr reduce_scatter_algorithm reduce_scatter;

/// The sum is folded in rank order, so the operation need not commute. The algorithm first does a
/// reduce_scatter in k rounds. In the first of these rounds, neighbours exchange data. The distance
/// between partners doubles from round to round. Then the algorithm does an all_gather of the sums
/// in k rounds, with the same partners in reverse order. If p is a power of two, a rank sends
/// 2(p-1)/p times the size of the buffer in total. Otherwise p - 2^k ranks do not take part in
/// these 2k rounds. Each of them first sends its input to a neighbour, and receives the sum from
/// this neighbour at the end.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::recursive_halving> {
  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    const pattern::hypercube cube(net.rank(), net.size());
    if (cube.fold_dest >= 0) {
      co_await net.send(cube.fold_dest, bytes(in));
      co_await net.recv(cube.fold_dest, bytes(out));
      co_return;
    }
    const partition parts(in.size(), 1 << cube.rounds);
    chunks sum(in, parts);
    const chunks result(out, parts);
    if (cube.rounds == 0) net.copy(bytes(out), bytes(in));
    if (cube.fold_source >= 0) {
      co_await net.recv_reduce(cube.fold_source, in, out, op, incoming::left);
      sum = result;
    }
    for (int round = 0; round < cube.rounds; ++round) {
      const int partner = cube.partner(round);
      const pattern::rank_range kept = cube.kept(round);
      const incoming side = partner < net.rank() ? incoming::left : incoming::right;
      co_await when_all(net.send(partner, bytes(sum[cube.sent(round)])),
                        net.recv_reduce(partner, sum[kept], result[kept], op, side));
      sum = result;
    }
    for (int round = cube.rounds; round-- > 0;) {
      const int partner = cube.partner(round);
      co_await when_all(net.send(partner, bytes(result[cube.kept(round)])),
                        net.recv(partner, bytes(result[cube.sent(round)])));
    }
    if (cube.fold_source >= 0) co_await net.send(cube.fold_source, bytes(out));
  }

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    const std::uint64_t n = model.bytes();
    const std::uint64_t corners = std::uint64_t{1} << model.cube_rounds();
    const std::uint64_t folded = model.folded_ranks();
    loggp::phase sum{2 * corners * model.number(model.cube_rounds()) + 2 * folded,
                     2 * (corners - 1 + folded) * n, 0, n - n / corners};
    for (int bit = 0; bit < model.cube_rounds(); ++bit) {
      sum.critical_path += 2 * model.cube_hop(n >> (bit + 1), bit);
    }
    return folded > 0 ? model.reduced(sum + loggp::phase{0, 0, 2 * model.fold(n)}, n) : sum;
  }
};
inline constexpr all_reduce_algorithm all_reduce;

}  // namespace colls::recursive_halving
