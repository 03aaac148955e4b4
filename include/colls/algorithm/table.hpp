// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which algorithms do which collective: one line each. A new algorithm is its file and its line.

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

/// What an algorithm asks of the operation or of the ranks, beyond what its collective does.
enum class needs : std::uint8_t { nothing, commutative, even_ranks };

/// One of the algorithms of a collective.
struct offer {
  algorithm how = algorithm::automatic;
  needs what = needs::nothing;
  order sums = order::any;  // rank: with the bits of the sequential sum
};

namespace detail {

/// Names a channel type without one.
template <class Channel>
struct over {};

// An algorithm, compiled for a channel when somebody asks for its address there.
#define COLLS_OVER(...) []<class Channel>(over<Channel>) { return &__VA_ARGS__; }

/// Calls `see(offer, address_over)` for each algorithm of the collective.
template <collective What, class See>
constexpr void each_algorithm(See see) {
  using op = any_op;
  using data = any_buffer;
  if constexpr (What == collective::barrier) {
    see({algorithm::linear}, COLLS_OVER(linear::barrier<Channel>));
    see({algorithm::dissemination}, COLLS_OVER(dissemination::barrier<Channel>));
    see({algorithm::binomial_tree}, COLLS_OVER(binomial_tree::barrier<Channel>));
  }
  if constexpr (What == collective::broadcast) {
    see({algorithm::linear}, COLLS_OVER(linear::broadcast<Channel, data>));
    see({algorithm::binomial_tree}, COLLS_OVER(binomial_tree::broadcast<Channel, data>));
    see({algorithm::knomial_tree}, COLLS_OVER(knomial_tree::broadcast<Channel, data>));
    see({algorithm::scatter_all_gather}, COLLS_OVER(scatter_all_gather::broadcast<Channel, data>));
    see({algorithm::chain}, COLLS_OVER(chain::broadcast<Channel, data>));
    see({algorithm::double_tree}, COLLS_OVER(double_tree::broadcast<Channel, data>));
    see({algorithm::circulant}, COLLS_OVER(circulant::broadcast<Channel, data>));
  }
  if constexpr (What == collective::all_reduce) {
    see({algorithm::linear, needs::nothing, order::rank},
        COLLS_OVER(linear::all_reduce<Channel, data, op>));
    see({algorithm::ring, needs::commutative}, COLLS_OVER(ring::all_reduce<Channel, data, op>));
    see({algorithm::recursive_doubling},
        COLLS_OVER(recursive_doubling::all_reduce<Channel, data, op>));
    see({algorithm::recursive_halving},
        COLLS_OVER(recursive_halving::all_reduce<Channel, data, op>));
    see({algorithm::double_tree}, COLLS_OVER(double_tree::all_reduce<Channel, data, op>));
    see({algorithm::circulant, needs::commutative},
        COLLS_OVER(circulant::all_reduce<Channel, data, op>));
    see({algorithm::hierarchical, needs::commutative},
        COLLS_OVER(hierarchical::all_reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce) {
    see({algorithm::linear, needs::nothing, order::rank},
        COLLS_OVER(linear::reduce<Channel, data, op>));
    see({algorithm::binomial_tree}, COLLS_OVER(binomial_tree::reduce<Channel, data, op>));
    see({algorithm::knomial_tree}, COLLS_OVER(knomial_tree::reduce<Channel, data, op>));
    see({algorithm::reduce_scatter_gather, needs::commutative},
        COLLS_OVER(reduce_scatter_gather::reduce<Channel, data, op>));
    see({algorithm::chain}, COLLS_OVER(chain::reduce<Channel, data, op>));
    see({algorithm::double_tree, needs::commutative},
        COLLS_OVER(double_tree::reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce_scatter) {
    see({algorithm::linear, needs::nothing, order::rank},
        COLLS_OVER(linear::reduce_scatter<Channel, data, op>));
    see({algorithm::ring, needs::commutative}, COLLS_OVER(ring::reduce_scatter<Channel, data, op>));
    see({algorithm::recursive_halving, needs::commutative},
        COLLS_OVER(recursive_halving::reduce_scatter<Channel, data, op>));
    see({algorithm::circulant, needs::commutative},
        COLLS_OVER(circulant::reduce_scatter<Channel, data, op>));
    see({algorithm::pairwise}, COLLS_OVER(pairwise::reduce_scatter<Channel, data, op>));
  }
  if constexpr (What == collective::all_gather) {
    see({algorithm::linear}, COLLS_OVER(linear::all_gather<Channel, data>));
    see({algorithm::ring}, COLLS_OVER(ring::all_gather<Channel, data>));
    see({algorithm::recursive_doubling}, COLLS_OVER(recursive_doubling::all_gather<Channel, data>));
    see({algorithm::circulant}, COLLS_OVER(circulant::all_gather<Channel, data>));
    see({algorithm::bruck}, COLLS_OVER(bruck::all_gather<Channel, data>));
    see({algorithm::neighbour_exchange, needs::even_ranks},
        COLLS_OVER(neighbour_exchange::all_gather<Channel, data>));
  }
  if constexpr (What == collective::gather) {
    see({algorithm::linear}, COLLS_OVER(linear::gather<Channel, data>));
    see({algorithm::binomial_tree}, COLLS_OVER(binomial_tree::gather<Channel, data>));
  }
  if constexpr (What == collective::scatter) {
    see({algorithm::linear}, COLLS_OVER(linear::scatter<Channel, data>));
    see({algorithm::binomial_tree}, COLLS_OVER(binomial_tree::scatter<Channel, data>));
  }
  if constexpr (What == collective::all_to_all) {
    see({algorithm::linear}, COLLS_OVER(linear::all_to_all<Channel, data>));
    see({algorithm::pairwise}, COLLS_OVER(pairwise::all_to_all<Channel, data>));
    see({algorithm::bruck}, COLLS_OVER(bruck::all_to_all<Channel, data>));
  }
  if constexpr (What == collective::scan) {
    see({algorithm::linear, needs::nothing, order::rank},
        COLLS_OVER(linear::scan<Channel, data, op>));
    see({algorithm::recursive_doubling}, COLLS_OVER(recursive_doubling::scan<Channel, data, op>));
    see({algorithm::chain, needs::nothing, order::rank},
        COLLS_OVER(chain::scan<Channel, data, op>));
  }
  if constexpr (What == collective::exscan) {
    see({algorithm::linear, needs::nothing, order::rank},
        COLLS_OVER(linear::exscan<Channel, data, op>));
    see({algorithm::recursive_doubling}, COLLS_OVER(recursive_doubling::exscan<Channel, data, op>));
    see({algorithm::chain, needs::nothing, order::rank},
        COLLS_OVER(chain::exscan<Channel, data, op>));
  }
}

/// The same for those that take ranks which meet.
template <collective What, class See>
constexpr void each_meeting_algorithm(See see) {
  if constexpr (What == collective::barrier) {
    see({algorithm::direct}, COLLS_OVER(in_one_step<at_meeting::barrier<Channel>, Channel>));
  }
  if constexpr (What == collective::all_reduce) {
    see({algorithm::direct, needs::nothing, order::rank},
        COLLS_OVER(at_meeting::all_reduce_in_place<Channel, any_buffer, any_op>));
  }
}

/// The same for those that take ranks which lend each other their buffers.
template <collective What, class See>
constexpr void each_lending_algorithm(See see) {
  using op = any_op;
  using data = any_buffer;
  if constexpr (What == collective::barrier) {
    see({algorithm::direct}, COLLS_OVER(in_one_step<whole::barrier<Channel>, Channel>));
  }
  if constexpr (What == collective::broadcast) {
    see({algorithm::direct}, COLLS_OVER(direct::broadcast<Channel, data>));
  }
  if constexpr (What == collective::all_reduce) {
    see({algorithm::direct, needs::nothing, order::rank},
        COLLS_OVER(direct::all_reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce) {
    see({algorithm::direct, needs::nothing, order::rank},
        COLLS_OVER(direct::reduce<Channel, data, op>));
  }
  if constexpr (What == collective::reduce_scatter) {
    see({algorithm::direct, needs::nothing, order::rank},
        COLLS_OVER(direct::reduce_scatter<Channel, data, op>));
  }
  if constexpr (What == collective::all_gather) {
    see({algorithm::direct}, COLLS_OVER(direct::all_gather<Channel, data>));
  }
  if constexpr (What == collective::gather) {
    see({algorithm::direct}, COLLS_OVER(direct::gather<Channel, data>));
  }
  if constexpr (What == collective::scatter) {
    see({algorithm::direct}, COLLS_OVER(direct::scatter<Channel, data>));
  }
  if constexpr (What == collective::all_to_all) {
    see({algorithm::direct}, COLLS_OVER(direct::all_to_all<Channel, data>));
  }
  if constexpr (What == collective::scan) {
    see({algorithm::direct, needs::nothing, order::rank},
        COLLS_OVER(direct::scan<Channel, data, op>));
  }
  if constexpr (What == collective::exscan) {
    see({algorithm::direct, needs::nothing, order::rank},
        COLLS_OVER(direct::exscan<Channel, data, op>));
  }
}

#undef COLLS_OVER

/// Calls `visit.operator()<What>()` for a collective that is known at run time.
template <class Visit>
constexpr void with_collective(collective what, Visit visit) {
  const auto among = [&]<collective... What>() {
    ((what == What ? visit.template operator()<What>() : void()), ...);
  };
  among.template
  operator()<collective::barrier, collective::broadcast, collective::all_reduce, collective::reduce,
             collective::reduce_scatter, collective::all_gather, collective::gather,
             collective::scatter, collective::all_to_all, collective::scan, collective::exscan>();
}

/// Whether an algorithm does that collective on some transport, with an operation that commutes or
/// does not.
constexpr bool offers(collective what, algorithm how, bool commutes) {
  bool found = false;
  const auto see = [&](const offer& one, auto) {
    found |= one.how == how && (commutes || one.what != needs::commutative);
  };
  with_collective(what, [&]<collective What>() {
    each_algorithm<What>(see);
    each_meeting_algorithm<What>(see);
    each_lending_algorithm<What>(see);
  });
  return found;
}

/// Why an algorithm cannot do a call, or null.
inline const char* refusal(const offer& candidate, const question& call) {
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

/// An algorithm over a channel.
template <class Function>
struct row : offer {
  Function* run = nullptr;
};

/// A collective that is one step (algorithm/frameless.hpp) by that algorithm.
template <collective What, class Step, algorithm How = algorithm::direct>
struct as_step {};

/// Such lines.
template <class... Lines>
struct steps;
template <collective... What, class... Step, algorithm... How>
struct steps<as_step<What, Step, How>...> : as_step<What, Step, How>... {
  static constexpr bool has(collective what, algorithm how) {
    return ((what == What && how == How) || ...);
  }
  template <collective Wanted, algorithm By>
  static constexpr auto of() {
    return step_of<Wanted, By>(static_cast<const steps*>(nullptr));
  }

 private:
  template <collective Wanted, algorithm By, class Found>
  static constexpr std::type_identity<Found> step_of(const as_step<Wanted, Found, By>*) {
    return {};
  }
  template <collective Wanted, algorithm By>
  static constexpr void step_of(const void*) {}
};

/// The algorithms over a channel, with types erased: compiled once per transport and program.
template <channel Channel>
struct catalogue {
  using op = any_op;
  using data = any_buffer;
  using transport = typename Channel::transport_type;
  static constexpr bool lends = lending_transport<transport>;
  static constexpr bool meets = meeting_transport<transport>;
  static constexpr bool sends_rounds = lends && round_transport<transport>;

  template <collective What, class See>
  static constexpr void each(See see) {
    each_algorithm<What>(see);
    if constexpr (meets) {
      each_meeting_algorithm<What>(see);
    }
    if constexpr (lends) each_lending_algorithm<What>(see);
  }
  /// Those that can do a call.
  static algorithm_set legal(const question& call) {
    algorithm_set found;
    with_collective(call.what, [&]<collective What>() {
      each<What>([&](const offer& one, auto) {
        if (refusal(one, call) == nullptr) found.add(one.how);
      });
    });
    return found;
  }

  template <collective What, class Function>
  static constexpr auto rows() {
    constexpr std::size_t n = [] {
      std::size_t count = 0;
      each<What>([&](const offer&, auto) { ++count; });
      return count;
    }();
    std::array<row<Function>, n> made;
    std::size_t i = 0;
    each<What>(
        [&](const offer& one, auto address) { made[i++] = {one, address(over<Channel>())}; });
    return made;
  }

  static constexpr auto barrier = rows<collective::barrier, task<>(Channel)>();
  static constexpr auto broadcast = rows<collective::broadcast, task<>(Channel, data, int)>();
  static constexpr auto all_reduce = rows<collective::all_reduce, task<>(Channel, data, op)>();
  /// Of those, the ones that read another buffer than they write: no copy before.
  static constexpr auto all_reduce_apart = [] {
    using apart = row<task<>(Channel, data, data, op)>;
    constexpr apart by_ring{{algorithm::ring, needs::commutative},
                            &ring::all_reduce_apart<Channel, data, op>};
    if constexpr (lends) {
      constexpr apart in_place{{algorithm::direct, needs::nothing, order::rank},
                               &direct::all_reduce_apart<Channel, data, op>};
      return std::array{by_ring, in_place};
    } else {
      return std::array{by_ring};
    }
  }();
  static constexpr auto reduce = rows<collective::reduce, task<>(Channel, data, data, int, op)>();
  static constexpr auto reduce_scatter =
      rows<collective::reduce_scatter, task<>(Channel, data, data, partition, op)>();
  static constexpr auto all_gather =
      rows<collective::all_gather, task<>(Channel, data, partition)>();
  /// The one that leaves it to the algorithm to put this rank's chunk into its place.
  static constexpr auto all_gather_apart = [] {
    using apart = row<task<>(Channel, data, data, partition)>;
    if constexpr (lends) {
      return std::array{apart{{algorithm::direct}, &direct::all_gather_apart<Channel, data>}};
    } else {
      return std::array<apart, 0>();
    }
  }();
  static constexpr auto gather =
      rows<collective::gather, task<>(Channel, data, data, partition, int)>();
  static constexpr auto scatter =
      rows<collective::scatter, task<>(Channel, data, data, partition, int)>();
  static constexpr auto all_to_all =
      rows<collective::all_to_all, task<>(Channel, data, partition, data, partition)>();
  static constexpr auto scan = rows<collective::scan, task<>(Channel, data, op)>();
  static constexpr auto exscan = rows<collective::exscan, task<>(Channel, data, op)>();

  /// The same where the collective is a template's argument.
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

  using at_a_meeting =
      steps<as_step<collective::barrier, at_meeting::barrier<Channel>>,
            as_step<collective::all_reduce, at_meeting::all_reduce<Channel, data, op>>,
            as_step<collective::all_reduce,
                    at_meeting::all_reduce<Channel, data, op, at_meeting::in_doubled_groups>,
                    algorithm::recursive_doubling>>;
  using in_a_round =
      steps<as_step<collective::barrier, whole::barrier<Channel>>,
            as_step<collective::broadcast, whole::broadcast<Channel, data>>,
            as_step<collective::all_reduce, whole::all_reduce<Channel, data, op>>,
            as_step<collective::reduce, whole::reduce<Channel, data, op>>,
            as_step<collective::reduce_scatter, whole::reduce_scatter<Channel, data, op>>,
            as_step<collective::all_gather, whole::all_gather<Channel, data>>,
            as_step<collective::gather, whole::gather<Channel, data>>,
            as_step<collective::scatter, whole::scatter<Channel, data>>,
            as_step<collective::all_to_all, whole::all_to_all<Channel, data>>,
            as_step<collective::scan, whole::scan<Channel, data, op>>,
            as_step<collective::exscan, whole::exscan<Channel, data, op>>>;
  using in_one_step = std::conditional_t<meets, at_a_meeting,
                                         std::conditional_t<sends_rounds, in_a_round, steps<>>>;

  /// Whether a call that is done so is one step.
  static constexpr bool is_one_step(const plan& by, const question& call) {
    if (!in_one_step::has(call.what, by.how)) return false;
    return meets || goes_whole(call.what, call.bytes, call.ranks);
  }
  /// That step (`std::type_identity`), or void.
  template <collective What, algorithm How>
  static constexpr auto step() {
    return in_one_step::template of<What, How>();
  }
};

/// The row of an algorithm, or null where it does not do that collective.
template <class Function, std::size_t N>
constexpr const row<Function>* find(const std::array<row<Function>, N>& rows, algorithm how) {
  for (const row<Function>& candidate : rows) {
    if (candidate.how == how) return &candidate;
  }
  return nullptr;
}

}  // namespace detail

}  // namespace colls
