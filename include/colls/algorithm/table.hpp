// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// table: the list of algorithms of each collective. Section 6 of docs/design.md says what a new
// algorithm needs.

#include <colls/algorithm/binomial_tree.hpp>
#include <colls/algorithm/bruck.hpp>
#include <colls/algorithm/chain.hpp>
#include <colls/algorithm/circulant.hpp>
#include <colls/algorithm/direct.hpp>
#include <colls/algorithm/direct_data_movement.hpp>
#include <colls/algorithm/direct_scan.hpp>
#include <colls/algorithm/direct_thresholds.hpp>
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
#include <colls/algorithm/selection_query.hpp>
#include <colls/base/algorithm_choice.hpp>

#include <array>

namespace colls {

/// What an algorithm requires of the reduction operation or of the number of ranks, in addition to
/// what the collective itself requires.
enum class needs : std::uint8_t { nothing, commutative, even_ranks };

/// The description of one algorithm of a collective.
struct algorithm_info {
  algorithm id = algorithm::automatic;
  needs requirement = needs::nothing;
  order reduction_order = order::any;  // `rank` if the result is that of a sequential reduction
};

namespace detail {

/// A tag that passes a channel type to a generic lambda.
template <class Channel>
struct channel_tag {};

// Expands to a lambda that takes a `channel_tag` and returns a pointer to the algorithm's function
// for this channel type. The function is instantiated only for the channel types with which the
// lambda is called.
#define COLLS_ALGORITHM(...) []<class Channel>(channel_tag<Channel>) { return &__VA_ARGS__; }

/// Calls `visitor(info, address)` for each algorithm of the collective `What` that works on every
/// transport. `info` is the `algorithm_info`, and `address(channel_tag<Channel>())` returns a
/// pointer to the algorithm's function.
template <collective What, class Visitor>
constexpr void for_each_algorithm(Visitor visitor) {
  using op = any_op;
  using data = any_buffer;
  if constexpr (What == collective::barrier) {
    visitor({algorithm::linear}, COLLS_ALGORITHM(linear::barrier<Channel>));
    visitor({algorithm::dissemination}, COLLS_ALGORITHM(dissemination::barrier<Channel>));
    visitor({algorithm::binomial_tree}, COLLS_ALGORITHM(binomial_tree::barrier<Channel>));
  }
  if constexpr (What == collective::broadcast) {
    visitor({algorithm::linear}, COLLS_ALGORITHM(linear::broadcast<Channel, data>));
    visitor({algorithm::binomial_tree}, COLLS_ALGORITHM(binomial_tree::broadcast<Channel, data>));
    visitor({algorithm::knomial_tree}, COLLS_ALGORITHM(knomial_tree::broadcast<Channel, data>));
    visitor({algorithm::scatter_all_gather},
            COLLS_ALGORITHM(scatter_all_gather::broadcast<Channel, data>));
    visitor({algorithm::chain}, COLLS_ALGORITHM(chain::broadcast<Channel, data>));
    visitor({algorithm::double_tree}, COLLS_ALGORITHM(double_tree::broadcast<Channel, data>));
    visitor({algorithm::circulant}, COLLS_ALGORITHM(circulant::broadcast<Channel, data>));
  }
  if constexpr (What == collective::all_reduce) {
    visitor({algorithm::linear, needs::nothing, order::rank},
            COLLS_ALGORITHM(linear::all_reduce<Channel, data, op>));
    visitor({algorithm::ring, needs::commutative},
            COLLS_ALGORITHM(ring::all_reduce<Channel, data, op>));
    visitor({algorithm::recursive_doubling},
            COLLS_ALGORITHM(recursive_doubling::all_reduce<Channel, data, op>));
    visitor({algorithm::recursive_halving},
            COLLS_ALGORITHM(recursive_halving::all_reduce<Channel, data, op>));
    visitor({algorithm::double_tree}, COLLS_ALGORITHM(double_tree::all_reduce<Channel, data, op>));
    visitor({algorithm::circulant, needs::commutative},
            COLLS_ALGORITHM(circulant::all_reduce<Channel, data, op>));
    visitor({algorithm::hierarchical, needs::commutative},
            COLLS_ALGORITHM(hierarchical::all_reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce) {
    visitor({algorithm::linear, needs::nothing, order::rank},
            COLLS_ALGORITHM(linear::reduce<Channel, data, op>));
    visitor({algorithm::binomial_tree}, COLLS_ALGORITHM(binomial_tree::reduce<Channel, data, op>));
    visitor({algorithm::knomial_tree}, COLLS_ALGORITHM(knomial_tree::reduce<Channel, data, op>));
    visitor({algorithm::reduce_scatter_gather, needs::commutative},
            COLLS_ALGORITHM(reduce_scatter_gather::reduce<Channel, data, op>));
    visitor({algorithm::chain}, COLLS_ALGORITHM(chain::reduce<Channel, data, op>));
    visitor({algorithm::double_tree, needs::commutative},
            COLLS_ALGORITHM(double_tree::reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce_scatter) {
    visitor({algorithm::linear, needs::nothing, order::rank},
            COLLS_ALGORITHM(linear::reduce_scatter<Channel, data, op>));
    visitor({algorithm::ring, needs::commutative},
            COLLS_ALGORITHM(ring::reduce_scatter<Channel, data, op>));
    visitor({algorithm::recursive_halving, needs::commutative},
            COLLS_ALGORITHM(recursive_halving::reduce_scatter<Channel, data, op>));
    visitor({algorithm::circulant, needs::commutative},
            COLLS_ALGORITHM(circulant::reduce_scatter<Channel, data, op>));
    visitor({algorithm::pairwise}, COLLS_ALGORITHM(pairwise::reduce_scatter<Channel, data, op>));
  }
  if constexpr (What == collective::all_gather) {
    visitor({algorithm::linear}, COLLS_ALGORITHM(linear::all_gather<Channel, data>));
    visitor({algorithm::ring}, COLLS_ALGORITHM(ring::all_gather<Channel, data>));
    visitor({algorithm::recursive_doubling},
            COLLS_ALGORITHM(recursive_doubling::all_gather<Channel, data>));
    visitor({algorithm::circulant}, COLLS_ALGORITHM(circulant::all_gather<Channel, data>));
    visitor({algorithm::bruck}, COLLS_ALGORITHM(bruck::all_gather<Channel, data>));
    visitor({algorithm::neighbour_exchange, needs::even_ranks},
            COLLS_ALGORITHM(neighbour_exchange::all_gather<Channel, data>));
  }
  if constexpr (What == collective::gather) {
    visitor({algorithm::linear}, COLLS_ALGORITHM(linear::gather<Channel, data>));
    visitor({algorithm::binomial_tree}, COLLS_ALGORITHM(binomial_tree::gather<Channel, data>));
  }
  if constexpr (What == collective::scatter) {
    visitor({algorithm::linear}, COLLS_ALGORITHM(linear::scatter<Channel, data>));
    visitor({algorithm::binomial_tree}, COLLS_ALGORITHM(binomial_tree::scatter<Channel, data>));
  }
  if constexpr (What == collective::all_to_all) {
    visitor({algorithm::linear}, COLLS_ALGORITHM(linear::all_to_all<Channel, data>));
    visitor({algorithm::pairwise}, COLLS_ALGORITHM(pairwise::all_to_all<Channel, data>));
    visitor({algorithm::bruck}, COLLS_ALGORITHM(bruck::all_to_all<Channel, data>));
  }
  if constexpr (What == collective::scan) {
    visitor({algorithm::linear, needs::nothing, order::rank},
            COLLS_ALGORITHM(linear::scan<Channel, data, op>));
    visitor({algorithm::recursive_doubling},
            COLLS_ALGORITHM(recursive_doubling::scan<Channel, data, op>));
    visitor({algorithm::chain, needs::nothing, order::rank},
            COLLS_ALGORITHM(chain::scan<Channel, data, op>));
  }
  if constexpr (What == collective::exscan) {
    visitor({algorithm::linear, needs::nothing, order::rank},
            COLLS_ALGORITHM(linear::exscan<Channel, data, op>));
    visitor({algorithm::recursive_doubling},
            COLLS_ALGORITHM(recursive_doubling::exscan<Channel, data, op>));
    visitor({algorithm::chain, needs::nothing, order::rank},
            COLLS_ALGORITHM(chain::exscan<Channel, data, op>));
  }
}

/// Like `for_each_algorithm`, but visits the algorithms that work only on a transport with a
/// completion barrier (see `completion_barrier_transport`).
template <collective What, class Visitor>
constexpr void for_each_last_arriver_algorithm(Visitor visitor) {
  if constexpr (What == collective::barrier) {
    visitor({algorithm::direct},
            COLLS_ALGORITHM(run_frameless<last_arriver::barrier<Channel>, Channel>));
  }
  if constexpr (What == collective::all_reduce) {
    visitor({algorithm::direct, needs::nothing, order::rank},
            COLLS_ALGORITHM(last_arriver::all_reduce_in_place<Channel, any_buffer, any_op>));
  }
}

/// Like `for_each_algorithm`, but visits the algorithms that work only on a transport with shared
/// windows (see `shared_window_transport`).
template <collective What, class Visitor>
constexpr void for_each_window_algorithm(Visitor visitor) {
  using op = any_op;
  using data = any_buffer;
  if constexpr (What == collective::barrier) {
    visitor({algorithm::direct},
            COLLS_ALGORITHM(run_frameless<direct_short::barrier<Channel>, Channel>));
  }
  if constexpr (What == collective::broadcast) {
    visitor({algorithm::direct}, COLLS_ALGORITHM(direct::broadcast<Channel, data>));
  }
  if constexpr (What == collective::all_reduce) {
    visitor({algorithm::direct, needs::nothing, order::rank},
            COLLS_ALGORITHM(direct::all_reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce) {
    visitor({algorithm::direct, needs::nothing, order::rank},
            COLLS_ALGORITHM(direct::reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce_scatter) {
    visitor({algorithm::direct, needs::nothing, order::rank},
            COLLS_ALGORITHM(direct::reduce_scatter<Channel, data, op>));
  }
  if constexpr (What == collective::all_gather) {
    visitor({algorithm::direct}, COLLS_ALGORITHM(direct::all_gather<Channel, data>));
  }
  if constexpr (What == collective::gather) {
    visitor({algorithm::direct}, COLLS_ALGORITHM(direct::gather<Channel, data>));
  }
  if constexpr (What == collective::scatter) {
    visitor({algorithm::direct}, COLLS_ALGORITHM(direct::scatter<Channel, data>));
  }
  if constexpr (What == collective::all_to_all) {
    visitor({algorithm::direct}, COLLS_ALGORITHM(direct::all_to_all<Channel, data>));
  }
  if constexpr (What == collective::scan) {
    visitor({algorithm::direct, needs::nothing, order::rank},
            COLLS_ALGORITHM(direct::scan<Channel, data, op>));
  }
  if constexpr (What == collective::exscan) {
    visitor({algorithm::direct, needs::nothing, order::rank},
            COLLS_ALGORITHM(direct::exscan<Channel, data, op>));
  }
}

#undef COLLS_ALGORITHM

/// Returns whether `coll` has the algorithm `algo` on at least one transport. If `commutes` is
/// false, ignores algorithms that require a commutative operation.
constexpr bool has_algorithm(collective coll, algorithm algo, bool commutes) {
  bool found = false;
  const auto visitor = [&](const algorithm_info& info, auto) {
    found |= info.id == algo && (commutes || info.requirement != needs::commutative);
  };
  with_collective(coll, [&]<collective What>() {
    for_each_algorithm<What>(visitor);
    for_each_last_arriver_algorithm<What>(visitor);
    for_each_window_algorithm<What>(visitor);
  });
  return found;
}

/// Returns the reason why the algorithm cannot perform the call that `query` describes, or null if
/// the algorithm can perform it.
inline const char* refusal(const algorithm_info& info, const selection_query& query) {
  if (info.requirement == needs::commutative && !query.commutative) {
    return "it sums in an order of its own, and this operation is not commutative";
  }
  if (info.requirement == needs::even_ranks && query.ranks % 2 != 0) {
    return "it needs an even number of ranks";
  }
  if (query.reduction_order == order::rank && info.reduction_order != order::rank &&
      query.reduces) {
    return "it does not give the bits of the sequential order, which order::rank and operations "
           "that are not associative ask for; linear does";
  }
  return nullptr;
}

/// The description of an algorithm and its function for one channel type.
template <class Function>
struct algorithm_entry : algorithm_info {
  Function* run = nullptr;
};

/// A list entry that says that the class `Algorithm` is the frameless form of the algorithm `Id` of
/// the collective `What`. A frameless form performs an algorithm without a coroutine (see
/// algorithm/frameless.hpp).
template <collective What, class Algorithm, algorithm Id = algorithm::direct>
struct frameless_entry {};

/// A list of `frameless_entry` types.
template <class... Entries>
struct frameless_entries;
template <collective... What, class... Algorithm, algorithm... Id>
struct frameless_entries<frameless_entry<What, Algorithm, Id>...>
    : frameless_entry<What, Algorithm, Id>... {
  static constexpr bool has(collective coll, algorithm algo) {
    return ((coll == What && algo == Id) || ...);
  }
  /// Returns a `std::type_identity` of the class in the entry for `Coll` and `Algo`. The return
  /// type is void if the list has no such entry.
  template <collective Coll, algorithm Algo>
  static constexpr auto find() {
    return type_of<Coll, Algo>(static_cast<const frameless_entries*>(nullptr));
  }

 private:
  template <collective Coll, algorithm Algo, class Found>
  static constexpr std::type_identity<Found> type_of(const frameless_entry<Coll, Found, Algo>*) {
    return {};
  }
  template <collective Coll, algorithm Algo>
  static constexpr void type_of(const void*) {}
};

/// The algorithms for one channel type. They take type-erased buffers (`any_buffer`) and reduction
/// operations (`any_op`), so that each algorithm is compiled only once per transport.
template <channel Channel>
struct algorithm_table {
  using op = any_op;
  using data = any_buffer;
  using transport = typename Channel::transport_type;
  static constexpr bool has_windows = shared_window_transport<transport>;
  static constexpr bool has_completion_barrier = completion_barrier_transport<transport>;
  static constexpr bool has_short_direct = has_windows && multi_send_recv_transport<transport>;

  template <collective What, class Visitor>
  static constexpr void for_each(Visitor visitor) {
    for_each_algorithm<What>(visitor);
    if constexpr (has_completion_barrier) {
      for_each_last_arriver_algorithm<What>(visitor);
    }
    if constexpr (has_windows) for_each_window_algorithm<What>(visitor);
  }
  /// Returns the set of algorithms that can perform the call that `query` describes.
  static algorithm_set legal(const selection_query& query) {
    algorithm_set result;
    with_collective(query.operation, [&]<collective What>() {
      for_each<What>([&](const algorithm_info& info, auto) {
        if (refusal(info, query) == nullptr) result.add(info.id);
      });
    });
    return result;
  }

  /// Returns an array with an entry for each algorithm of the collective `What`.
  template <collective What, class Function>
  static constexpr auto entries() {
    constexpr std::size_t n = [] {
      std::size_t count = 0;
      for_each<What>([&](const algorithm_info&, auto) { ++count; });
      return count;
    }();
    std::array<algorithm_entry<Function>, n> result;
    std::size_t i = 0;
    for_each<What>([&](const algorithm_info& info, auto address) {
      result[i++] = {info, address(channel_tag<Channel>())};
    });
    return result;
  }

  static constexpr auto barrier = entries<collective::barrier, task<>(Channel)>();
  static constexpr auto broadcast = entries<collective::broadcast, task<>(Channel, data, int)>();
  static constexpr auto all_reduce = entries<collective::all_reduce, task<>(Channel, data, op)>();
  /// The all_reduce algorithms that read the input from one buffer and write the result to another,
  /// so that callers need not copy the input first.
  static constexpr auto all_reduce_out_of_place = [] {
    using entry = algorithm_entry<task<>(Channel, data, data, op)>;
    constexpr entry by_ring{{algorithm::ring, needs::commutative},
                            &ring::all_reduce_out_of_place<Channel, data, op>};
    if constexpr (has_windows) {
      constexpr entry by_direct{{algorithm::direct, needs::nothing, order::rank},
                                &direct::all_reduce_out_of_place<Channel, data, op>};
      return std::array{by_ring, by_direct};
    } else {
      return std::array{by_ring};
    }
  }();
  static constexpr auto reduce =
      entries<collective::reduce, task<>(Channel, data, data, int, op)>();
  static constexpr auto reduce_scatter =
      entries<collective::reduce_scatter, task<>(Channel, data, data, partition, op)>();
  static constexpr auto all_gather =
      entries<collective::all_gather, task<>(Channel, data, partition)>();
  /// The all_gather algorithms that read this rank's chunk from a separate buffer, so that callers
  /// need not copy the chunk into the result first.
  static constexpr auto all_gather_out_of_place = [] {
    using entry = algorithm_entry<task<>(Channel, data, data, partition)>;
    if constexpr (has_windows) {
      return std::array{
          entry{{algorithm::direct}, &direct::all_gather_out_of_place<Channel, data>}};
    } else {
      return std::array<entry, 0>();
    }
  }();
  static constexpr auto gather =
      entries<collective::gather, task<>(Channel, data, data, partition, int)>();
  static constexpr auto scatter =
      entries<collective::scatter, task<>(Channel, data, data, partition, int)>();
  static constexpr auto all_to_all =
      entries<collective::all_to_all, task<>(Channel, data, partition, data, partition)>();
  static constexpr auto scan = entries<collective::scan, task<>(Channel, data, op)>();
  static constexpr auto exscan = entries<collective::exscan, task<>(Channel, data, op)>();

  /// Returns the array of algorithms of the collective `What`.
  template <collective What>
  static constexpr const auto& algorithms() {
    if constexpr (What == collective::barrier) return barrier;
    if constexpr (What == collective::broadcast) return broadcast;
    if constexpr (What == collective::all_reduce) return all_reduce;
    if constexpr (What == collective::reduce) return reduce;
    if constexpr (What == collective::reduce_scatter) return reduce_scatter;
    if constexpr (What == collective::all_gather) return all_gather;
    if constexpr (What == collective::gather) return gather;
    if constexpr (What == collective::scatter) return scatter;
    if constexpr (What == collective::all_to_all) return all_to_all;
    if constexpr (What == collective::scan) return scan;
    if constexpr (What == collective::exscan) return exscan;
  }

  using last_arriver_entries = frameless_entries<
      frameless_entry<collective::barrier, last_arriver::barrier<Channel>>,
      frameless_entry<collective::all_reduce, last_arriver::all_reduce<Channel, data, op>>,
      frameless_entry<
          collective::all_reduce,
          last_arriver::all_reduce<Channel, data, op, last_arriver::recursive_doubling_order>,
          algorithm::recursive_doubling>>;
  using direct_short_entries = frameless_entries<
      frameless_entry<collective::barrier, direct_short::barrier<Channel>>,
      frameless_entry<collective::broadcast, direct_short::broadcast<Channel, data>>,
      frameless_entry<collective::all_reduce, direct_short::all_reduce<Channel, data, op>>,
      frameless_entry<collective::reduce, direct_short::reduce<Channel, data, op>>,
      frameless_entry<collective::reduce_scatter, direct_short::reduce_scatter<Channel, data, op>>,
      frameless_entry<collective::all_gather, direct_short::all_gather<Channel, data>>,
      frameless_entry<collective::gather, direct_short::gather<Channel, data>>,
      frameless_entry<collective::scatter, direct_short::scatter<Channel, data>>,
      frameless_entry<collective::all_to_all, direct_short::all_to_all<Channel, data>>,
      frameless_entry<collective::scan, direct_short::scan<Channel, data, op>>,
      frameless_entry<collective::exscan, direct_short::exscan<Channel, data, op>>>;
  /// The frameless algorithms that the transport supports.
  using frameless_list = std::conditional_t<
      has_completion_barrier, last_arriver_entries,
      std::conditional_t<has_short_direct, direct_short_entries, frameless_entries<>>>;

  /// Returns whether the call that `query` describes runs the frameless form of the algorithm
  /// `choice.id`.
  static constexpr bool is_frameless(const algorithm_choice& choice, const selection_query& query) {
    if (!frameless_list::has(query.operation, choice.id)) return false;
    return has_completion_barrier || is_short_vector(query.operation, query.bytes, query.ranks);
  }
  /// Returns a `std::type_identity` of the frameless form of the algorithm `Id`. The return type is
  /// void if the algorithm has no frameless form.
  template <collective What, algorithm Id>
  static constexpr auto frameless_type() {
    return frameless_list::template find<What, Id>();
  }
};

/// Returns the entry of the algorithm `algo`, or null if `entries` has none.
template <class Function, std::size_t N>
constexpr const algorithm_entry<Function>* find(
    const std::array<algorithm_entry<Function>, N>& entries, algorithm algo) {
  for (const algorithm_entry<Function>& entry : entries) {
    if (entry.id == algo) return &entry;
  }
  return nullptr;
}

}  // namespace detail

}  // namespace colls
