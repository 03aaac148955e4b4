// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which algorithms do which collective: one line each. A new algorithm is its file and its line.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/bruck.hpp>
#include <colls/algorithm/chain.hpp>
#include <colls/algorithm/circulant.hpp>
#include <colls/algorithm/composed.hpp>
#include <colls/algorithm/direct.hpp>
#include <colls/algorithm/dissemination.hpp>
#include <colls/algorithm/double_tree.hpp>
#include <colls/algorithm/hierarchical.hpp>
#include <colls/algorithm/knomial_tree.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/pairwise.hpp>
#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/algorithm/recursive_halving.hpp>
#include <colls/algorithm/ring.hpp>
#include <colls/tuning.hpp>

#include <algorithm>
#include <array>

namespace colls {

/// What an algorithm asks of the operation or of the ranks, beyond what its collective does.
enum class needs : std::uint8_t { nothing, commutative, even_ranks };

namespace detail {

template <class Function>
struct row {
  algorithm how = algorithm::automatic;
  Function* run = nullptr;
  needs what = needs::nothing;
  order sums = order::any;  // rank: with the bits of the sequential sum
};

template <class Function, std::size_t N>
constexpr std::array<row<Function>, N> table(const row<Function> (&rows)[N]) {
  return std::to_array(rows);
}

/// The algorithms over a channel, with types erased: compiled once per transport and program.
template <channel Channel>
struct catalogue {
  using op = any_op;
  using data = any_buffer;

  /// One row more where ranks see each other's memory.
  template <class Function, std::size_t N>
  static constexpr auto with_direct(const std::array<row<Function>, N>& rows) {
    if constexpr (addressable_transport<typename Channel::transport_type>) {
      std::array<row<Function>, N + 1> more{};
      std::copy(rows.begin(), rows.end(), more.begin());
      more[N] = {algorithm::direct, &direct::all_reduce<Channel, data, op>, needs::nothing,
                 order::rank};
      return more;
    } else {
      return rows;
    }
  }

  static constexpr auto barrier = table<task<>(Channel)>({
      {algorithm::linear, &linear::barrier<Channel>},
      {algorithm::dissemination, &dissemination::barrier<Channel>},
      {algorithm::binomial_tree, &binomial_tree::barrier<Channel>},
  });
  static constexpr auto broadcast = table<task<>(Channel, data, int)>({
      {algorithm::linear, &linear::broadcast<Channel, data>},
      {algorithm::binomial_tree, &binomial_tree::broadcast<Channel, data>},
      {algorithm::knomial_tree, &knomial_tree::broadcast<Channel, data>},
      {algorithm::scatter_all_gather, &scatter_all_gather::broadcast<Channel, data>},
      {algorithm::chain, &chain::broadcast<Channel, data>},
      {algorithm::double_tree, &double_tree::broadcast<Channel, data>},
      {algorithm::circulant, &circulant::broadcast<Channel, data>},
  });
  static constexpr auto all_reduce = with_direct(table<task<>(Channel, data, op)>({
      {algorithm::linear, &linear::all_reduce<Channel, data, op>, needs::nothing, order::rank},
      {algorithm::ring, &ring::all_reduce<Channel, data, op>, needs::commutative},
      {algorithm::recursive_doubling, &recursive_doubling::all_reduce<Channel, data, op>},
      {algorithm::recursive_halving, &recursive_halving::all_reduce<Channel, data, op>},
      {algorithm::double_tree, &double_tree::all_reduce<Channel, data, op>},
      {algorithm::circulant, &circulant::all_reduce<Channel, data, op>, needs::commutative},
      {algorithm::hierarchical, &hierarchical::all_reduce<Channel, data, op>, needs::commutative},
  }));
  static constexpr auto reduce = table<task<>(Channel, data, data, int, op)>({
      {algorithm::linear, &linear::reduce<Channel, data, op>, needs::nothing, order::rank},
      {algorithm::binomial_tree, &binomial_tree::reduce<Channel, data, op>},
      {algorithm::knomial_tree, &knomial_tree::reduce<Channel, data, op>},
      {algorithm::reduce_scatter_gather, &reduce_scatter_gather::reduce<Channel, data, op>,
       needs::commutative},
      {algorithm::chain, &chain::reduce<Channel, data, op>},
      {algorithm::double_tree, &double_tree::reduce<Channel, data, op>, needs::commutative},
  });
  static constexpr auto reduce_scatter = table<task<>(Channel, data, data, partition, op)>({
      {algorithm::linear, &linear::reduce_scatter<Channel, data, op>, needs::nothing, order::rank},
      {algorithm::ring, &ring::reduce_scatter<Channel, data, op>, needs::commutative},
      {algorithm::recursive_halving, &recursive_halving::reduce_scatter<Channel, data, op>,
       needs::commutative},
      {algorithm::circulant, &circulant::reduce_scatter<Channel, data, op>, needs::commutative},
      {algorithm::pairwise, &pairwise::reduce_scatter<Channel, data, op>},
  });
  static constexpr auto all_gather = table<task<>(Channel, data, partition)>({
      {algorithm::linear, &linear::all_gather<Channel, data>},
      {algorithm::ring, &ring::all_gather<Channel, data>},
      {algorithm::recursive_doubling, &recursive_doubling::all_gather<Channel, data>},
      {algorithm::circulant, &circulant::all_gather<Channel, data>},
      {algorithm::bruck, &bruck::all_gather<Channel, data>},
      {algorithm::neighbour_exchange, &ring::neighbour_exchange<Channel, data>, needs::even_ranks},
  });
  static constexpr auto gather = table<task<>(Channel, data, data, partition, int)>({
      {algorithm::linear, &linear::gather<Channel, data>},
      {algorithm::binomial_tree, &binomial_tree::gather<Channel, data>},
  });
  static constexpr auto scatter = table<task<>(Channel, data, data, partition, int)>({
      {algorithm::linear, &linear::scatter<Channel, data>},
      {algorithm::binomial_tree, &binomial_tree::scatter<Channel, data>},
  });
  static constexpr auto all_to_all = table<task<>(Channel, data, partition, data, partition)>({
      {algorithm::linear, &linear::all_to_all<Channel, data>},
      {algorithm::pairwise, &pairwise::all_to_all<Channel, data>},
      {algorithm::bruck, &bruck::all_to_all<Channel, data>},
  });
  static constexpr auto scan = table<task<>(Channel, data, op)>({
      {algorithm::linear, &linear::scan<Channel, data, op>, needs::nothing, order::rank},
      {algorithm::recursive_doubling, &recursive_doubling::scan<Channel, data, op>},
      {algorithm::chain, &chain::scan<Channel, data, op>, needs::nothing, order::rank},
  });
  static constexpr auto exscan = table<task<>(Channel, data, op)>({
      {algorithm::linear, &linear::exscan<Channel, data, op>, needs::nothing, order::rank},
      {algorithm::recursive_doubling, &recursive_doubling::exscan<Channel, data, op>},
      {algorithm::chain, &chain::exscan<Channel, data, op>, needs::nothing, order::rank},
  });
};

/// The row of an algorithm, or null where it does not do that collective.
template <class Function, std::size_t N>
constexpr const row<Function>* find(const std::array<row<Function>, N>& rows, algorithm how) {
  for (const row<Function>& candidate : rows) {
    if (candidate.how == how) return &candidate;
  }
  return nullptr;
}

/// Why an algorithm cannot do a call, or null.
template <class Function>
const char* refusal(const row<Function>& candidate, const question& call) {
  if (candidate.what == needs::commutative && !call.commutative) {
    return "it sums in an order of its own, and this operation is not commutative";
  }
  if (candidate.what == needs::even_ranks && call.ranks % 2 != 0) {
    return "it needs an even number of ranks";
  }
  if (call.sum == order::rank && candidate.sums != order::rank && call.reduces) {
    return "it does not give the bits of the sequential order, which order::rank and operations "
           "that are not associative ask for; linear does";
  }
  return nullptr;
}

/// Those that can.
template <class Function, std::size_t N>
algorithm_set legal_of(const std::array<row<Function>, N>& rows, const question& call) {
  algorithm_set legal;
  for (const row<Function>& candidate : rows) {
    if (refusal(candidate, call) == nullptr) legal.add(candidate.how);
  }
  return legal;
}

/// Whether an algorithm does that collective, with an operation that commutes or does not; for
/// constant expressions (g++ with UBSan does not compare addresses in them).
template <class Function, std::size_t N>
constexpr bool offers(const std::array<row<Function>, N>& rows, algorithm how, bool commutes) {
  for (const row<Function>& candidate : rows) {
    if (candidate.how == how) return commutes || candidate.what != needs::commutative;
  }
  return false;
}

}  // namespace detail

}  // namespace colls
