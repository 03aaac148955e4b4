// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// last_arriver: collectives for ranks that all run on one thread. Every rank calls `arrive` on its
// channel, and then waits. The rank that arrives last does the work of all ranks, and then releases
// the other ranks. All algorithms here are frameless (see `frameless`): each consists of one
// transport operation with local work before and after it.

#include <colls/algorithm/description.hpp>
#include <colls/algorithm/frameless.hpp>
#include <colls/algorithm/typed_view.hpp>

#include <bit>
#include <span>

namespace colls::last_arriver {

/// A barrier for ranks that all run on one thread. No rank leaves the barrier before all ranks have
/// entered it. The barrier sends no messages.
template <channel Channel>
class barrier_step {
 public:
  explicit barrier_step(const Channel&) {}
  auto request(const Channel& net) const { return net.arrive(nullptr); }
  void finish(const Channel&, auto& arrivals) const {
    if (arrivals.is_last()) arrivals.release();
  }
};

/// The folding policy that uses rank order. A folding policy determines the order in which the last
/// arriver folds (combines) the inputs. Its function `add` folds one piece of all inputs.
/// `parts[r]` is the address of this piece in the input of rank r, and `sums[r]` is its address in
/// the output of rank r. `add` writes the result to `sum`, which is the piece at the address
/// `sums[0]`. It may also write the result to other outputs. If it returns n, the outputs of ranks
/// 0 to n-1 already hold the result.
struct in_rank_order {
  template <channel Channel, buffer Data, class Op>
  static std::size_t add(const Channel& net, const Data& sum, std::span<void* const> parts,
                         std::span<void* const> sums, const Op& op) {
    const void* const* const inputs = parts.data();
    net.reduce(sum, std::span(inputs, parts.size()), op, sums[1]);
    return 2;
  }
};
/// A folding policy that gives the same bits as the algorithm recursive_doubling. In that
/// algorithm, ranks form groups that double in size, and every rank of a group computes the group's
/// sum. Here the sum of a group is computed only once, in the output of the group's first rank.
struct recursive_doubling_order {
  template <channel Channel, buffer Data, class Op>
  static std::size_t add(const Channel& net, const Data& sum, std::span<void* const> parts,
                         std::span<void* const> sums, const Op& op) {
    // The algorithm recursive_doubling assigns the ranks to the corners of a hypercube. If the
    // number of ranks is not a power of two, it assigns two ranks to each of the first `doubled`
    // corners.
    const std::size_t corners = std::bit_floor(parts.size());
    const std::size_t doubled = parts.size() - corners;
    const auto first_of = [&](std::size_t corner) {
      return corner < doubled ? 2 * corner : corner + doubled;
    };
    const auto join = [&](std::size_t dest, void* left, void* right) {
      const auto piece = [&](void* memory) { return typed_view(sum, memory, sum.size()); };
      net.reduce(piece(sums[dest]), piece(left), piece(right), op);
    };
    for (std::size_t at = 0; at < 2 * doubled; at += 2) join(at, parts[at], parts[at + 1]);
    for (std::size_t group = 1; group < corners; group *= 2) {
      const auto held = [&](std::size_t corner) {
        const std::size_t rank = first_of(corner);
        return group > 1 || corner < doubled ? sums[rank] : parts[rank];
      };
      for (std::size_t at = 0; at < corners; at += 2 * group) {
        join(first_of(at), held(at), held(at + group));
      }
    }
    return 1;
  }
};

/// An all_reduce. Afterwards `out` on every rank holds the sum of `in` over all ranks. `in` may be
/// the same buffer as `out`; otherwise it is only read. All ranks must run on one thread. The rank
/// that arrives last sums the inputs of all ranks, in pieces that fit into the cache, and writes
/// the sum of each piece to all outputs. No rank sends a message.
template <channel Channel, buffer Data, class Op, class Order = in_rank_order>
class all_reduce_step {
 public:
  all_reduce_step(const Channel&, const Data& in, const Data& out, const Op& op)
      : in_(in), out_(out), op_(op) {}
  auto request(const Channel& net) { return net.arrive(this); }
  void finish(const Channel& net, auto& arrivals) const {
    if (!arrivals.is_last()) return;
    reduce_all(net, arrivals);
    arrivals.release();
  }

 private:
  void reduce_all(const Channel& net, const auto& arrivals) const {
    const auto ranks = static_cast<std::size_t>(net.size());
    if (ranks == 1) return net.copy(bytes(out_), bytes(in_));
    detail::recycled_vector<void*> places(2 * ranks);
    const std::span parts(places.data(), ranks);
    const std::span sums(places.data() + ranks, ranks);
    const auto add_rank = [&](int rank, const all_reduce_step& call) {
      parts[static_cast<std::size_t>(rank)] = call.in_.data();
      sums[static_cast<std::size_t>(rank)] = call.out_.data();
    };
    add_rank(net.rank(), *this);
    arrivals.for_each_other([&](int rank, const void* remote) {
      add_rank(rank, *static_cast<const all_reduce_step*>(remote));
    });
    constexpr std::size_t piece_bytes = 16 * 1024;
    const std::size_t step = elements_in(piece_bytes, element_size(out_));
    for (std::size_t left = out_.size(); left > 0;) {
      const Data sum = typed_view(out_, sums[0], step < left ? step : left);
      const const_bytes piece = bytes(sum);
      std::size_t rank = Order::add(net, sum, parts, sums, op_);
      for (; rank < ranks; ++rank) {
        net.copy({static_cast<std::byte*>(sums[rank]), piece.size}, piece);
      }
      left -= sum.size();
      if (left == 0) break;
      for (void*& place : places) place = static_cast<std::byte*>(place) + piece.size;
    }
  }

  Data in_;
  Data out_;
  Op op_;
};

/// `barrier_step` as an algorithm.
struct barrier_algorithm : built_in<collective::barrier, algorithm::direct> {
  static constexpr algorithm_needs needs{.one_thread = true};

  template <channel Channel>
  static task<> run(Channel net) {
    return run_frameless<barrier_step<Channel>>(net);
  }
  template <class Channel>
  using frameless = barrier_step<Channel>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.last_arriver(0);
  }
};
inline constexpr barrier_algorithm barrier;

/// `all_reduce_step` as an algorithm.
struct all_reduce_algorithm : built_in<collective::all_reduce, algorithm::direct> {
  static constexpr algorithm_needs needs{.one_thread = true};
  static constexpr order reduction_order = order::rank;

  template <channel Channel, buffer Data, class Op>
  static task<> run(Channel net, Data in, Data out, Op op) {
    return run_frameless<all_reduce_step<Channel, Data, Op>>(net, in, out, op);
  }
  template <class Channel>
  using frameless = all_reduce_step<Channel, any_buffer, any_op>;

  static constexpr auto cost(const loggp_model& model, const algorithm_choice&) {
    return model.last_arriver(2 * model.number(model.ranks() - 1) * model.bytes());
  }
};
inline constexpr all_reduce_algorithm all_reduce;

}  // namespace colls::last_arriver
