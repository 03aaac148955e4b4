// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// table: the list of algorithms of each collective. docs/adding_an_algorithm.md says what a new
// algorithm needs.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/bruck.hpp>
#include <colls/algorithm/chain.hpp>
#include <colls/algorithm/circulant.hpp>
#include <colls/algorithm/description.hpp>
#include <colls/algorithm/direct.hpp>
#include <colls/algorithm/direct_data_movement.hpp>
#include <colls/algorithm/direct_scan.hpp>
#include <colls/algorithm/dissemination.hpp>
#include <colls/algorithm/double_tree.hpp>
#include <colls/algorithm/hierarchical.hpp>
#include <colls/algorithm/knomial_tree.hpp>
#include <colls/algorithm/last_arriver.hpp>
#include <colls/algorithm/linear.hpp>
#include <colls/algorithm/neighbour_exchange.hpp>
#include <colls/algorithm/pairwise.hpp>
#include <colls/algorithm/recursive_doubling.hpp>
#include <colls/algorithm/recursive_halving.hpp>
#include <colls/algorithm/reduce_scatter_gather.hpp>
#include <colls/algorithm/ring.hpp>
#include <colls/algorithm/scatter_all_gather.hpp>

#include <array>

namespace colls {

/// A list of algorithms.
template <auto... Algorithms>
struct algorithm_list {
  /// Calls `visitor.operator()<Algorithm>()` for each algorithm.
  template <class Visitor>
  static constexpr void for_each(const Visitor& visitor) {
    (visitor.template operator()<Algorithms>(), ...);
  }
};

template <auto... First, auto... Second>
constexpr auto operator+(algorithm_list<First...>, algorithm_list<Second...>) {
  return algorithm_list<First..., Second...>();
}

namespace detail {

/// Returns the algorithms of the collective `Coll`.
template <collective Coll>
constexpr auto algorithms_of() {
  if constexpr (Coll == collective::barrier) {
    return algorithm_list<linear::barrier, dissemination::barrier, binomial_tree::barrier,
                          last_arriver::barrier, direct::barrier>();
  } else if constexpr (Coll == collective::broadcast) {
    return algorithm_list<linear::broadcast, binomial_tree::broadcast, knomial_tree::broadcast,
                          scatter_all_gather::broadcast, chain::broadcast, double_tree::broadcast,
                          circulant::broadcast, direct::broadcast>();
  } else if constexpr (Coll == collective::all_reduce) {
    return algorithm_list<linear::all_reduce, ring::all_reduce, recursive_doubling::all_reduce,
                          recursive_halving::all_reduce, double_tree::all_reduce,
                          circulant::all_reduce, hierarchical::all_reduce, last_arriver::all_reduce,
                          direct::all_reduce>();
  } else if constexpr (Coll == collective::reduce) {
    return algorithm_list<linear::reduce, binomial_tree::reduce, knomial_tree::reduce,
                          reduce_scatter_gather::reduce, chain::reduce, double_tree::reduce,
                          direct::reduce>();
  } else if constexpr (Coll == collective::reduce_scatter) {
    return algorithm_list<linear::reduce_scatter, ring::reduce_scatter,
                          recursive_halving::reduce_scatter, circulant::reduce_scatter,
                          pairwise::reduce_scatter, direct::reduce_scatter>();
  } else if constexpr (Coll == collective::all_gather) {
    return algorithm_list<linear::all_gather, ring::all_gather, recursive_doubling::all_gather,
                          circulant::all_gather, bruck::all_gather, neighbour_exchange::all_gather,
                          direct::all_gather>();
  } else if constexpr (Coll == collective::gather) {
    return algorithm_list<linear::gather, binomial_tree::gather, direct::gather>();
  } else if constexpr (Coll == collective::scatter) {
    return algorithm_list<linear::scatter, binomial_tree::scatter, direct::scatter>();
  } else if constexpr (Coll == collective::all_to_all) {
    return algorithm_list<linear::all_to_all, pairwise::all_to_all, bruck::all_to_all,
                          direct::all_to_all>();
  } else if constexpr (Coll == collective::scan) {
    return algorithm_list<linear::scan, recursive_doubling::scan, chain::scan, direct::scan>();
  } else if constexpr (Coll == collective::exscan) {
    return algorithm_list<linear::exscan, recursive_doubling::exscan, chain::exscan,
                          direct::exscan>();
  } else {
    return algorithm_list<>();
  }
}

/// The algorithms of the collective `Coll` that `Transport` alone has, such as those of MPI.
template <collective Coll, class Transport>
inline constexpr auto native_algorithms = algorithm_list<>();

/// Returns whether `coll` has the algorithm `algo` on at least one transport. If `commutes` is
/// false, ignores algorithms that require a commutative operation.
constexpr bool has_algorithm(collective coll, algorithm algo, bool commutes) {
  bool found = false;
  with_collective(coll, [&]<collective Coll>() {
    algorithms_of<Coll>().for_each([&]<auto Algorithm>() {
      found |= Algorithm.id == algo && (commutes || !Algorithm.needs.commutative);
    });
  });
  return found;
}

template <class Transport>
constexpr bool provides(const algorithm_needs& needs) {
  return (!needs.one_thread || completion_barrier_transport<Transport>) &&
         (!needs.shared_windows || shared_window_transport<Transport>);
}

/// The algorithms for one channel type. They take type-erased buffers (`any_buffer`) and reduction
/// operations (`any_op`), so that each algorithm is compiled only once per transport.
template <channel Channel>
class algorithm_table {
 public:
  using transport = typename Channel::transport_type;

  /// Calls `visitor.operator()<Algorithm>()` for each algorithm of the collective `Coll`.
  template <collective Coll, class Visitor>
  static constexpr void for_each(const Visitor& visitor) {
    all<Coll>.for_each([&]<auto Algorithm>() {
      static_assert(Algorithm.operation == Coll && Algorithm.id != algorithm::custom,
                    "an algorithm of colls derives from built_in<collective, algorithm>, and is in "
                    "the list of its collective");
      if constexpr (provides<transport>(Algorithm.needs)) {
        visitor.template operator()<Algorithm>();
      }
    });
  }
  /// Returns the reason why the algorithm cannot perform the call, or null if it can.
  static const char* refusal(const algorithm_info& info, const selection_query& query) {
    return detail::refusal(info, query);
  }
  /// Returns the descriptions and functions of the algorithms of the collective `Coll`.
  template <collective Coll>
  static constexpr const auto& algorithms() {
    return entries<Coll>;
  }

  /// Returns the list of the algorithms of the collective `Coll` that have a frameless form.
  template <collective Coll>
  static constexpr auto frameless_algorithms() {
    return frameless_algorithms(all<Coll>);
  }

 private:
  template <collective Coll>
  static constexpr auto all = algorithms_of<Coll>() + native_algorithms<Coll, transport>;

  template <auto... Algorithms>
  static constexpr auto frameless_algorithms(algorithm_list<Algorithms...>) {
    return (algorithm_list<>() + ... +
            std::conditional_t<has_frameless<Algorithms>(), algorithm_list<Algorithms>,
                               algorithm_list<>>());
  }
  template <auto Algorithm>
  static constexpr bool has_frameless() {
    if constexpr (provides<transport>(Algorithm.needs)) {
      return !std::is_void_v<typename class_of<Algorithm>::template frameless<Channel>>;
    }
    return false;
  }
  template <collective Coll>
  static constexpr auto make_entries() {
    constexpr std::size_t n = [] {
      std::size_t count = 0;
      for_each<Coll>([&]<auto Algorithm>() { ++count; });
      return count;
    }();
    std::array<algorithm_entry<algorithm_function<Coll, Channel>>, n> result;
    std::size_t i = 0;
    for_each<Coll>([&]<auto Algorithm>() { result[i++] = entry_of<Algorithm, Channel>; });
    return result;
  }
  template <collective Coll>
  static constexpr auto entries = make_entries<Coll>();
};

}  // namespace detail

}  // namespace colls
