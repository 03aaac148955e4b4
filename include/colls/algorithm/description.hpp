// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// description: what an algorithm says about itself: its collective, its name, what it needs, and
// its predicted cost. docs/adding_an_algorithm.md explains how to write an algorithm.

#include <colls/algorithm/selection_query.hpp>
#include <colls/base/algorithm_choice.hpp>
#include <colls/base/loggp_model.hpp>
#include <colls/base/partition.hpp>
#include <colls/channel/channel.hpp>

#include <type_traits>

namespace colls {

/// What an algorithm needs, in addition to what its collective needs.
struct algorithm_needs {
  bool commutative = false;     // the reduction operation must commute
  bool even_ranks = false;      // the number of ranks must be even
  bool one_thread = false;      // all ranks run on one thread (`completion_barrier_transport`)
  bool shared_windows = false;  // ranks access each other's memory (`shared_window_transport`)
};

/// The base class of each algorithm of the collective `Coll`. An algorithm is an empty class, and a
/// constant of this class is passed as a template argument. The class has these static members:
/// - `run(net, arguments...)` is a function template that returns the task of one rank, and is
///   usually a coroutine. `net` is a channel. `algorithm_function` lists the other arguments.
/// - `cost(model, choice)` returns the predicted cost of a call, a `loggp::phase`. `model` is the
///   `loggp_model` of the call. There are at least two ranks.
/// - `name`, a string. The base class `built_in` of the algorithms of colls defines it.
/// - The members below, if the algorithm needs other values.
template <collective Coll>
struct collective_algorithm {
  static constexpr collective operation = Coll;
  static constexpr algorithm id = algorithm::custom;
  static constexpr algorithm_needs needs{};
  /// The order in which a reduction combines the inputs. With `order::rank`, the result has the
  /// bits of a sequential reduction.
  static constexpr order reduction_order = order::any;
  /// Whether the algorithm uses the radix of the channel.
  static constexpr bool has_radix = false;
  /// Returns the length in bytes of the longest part of the vector that the algorithm cuts into
  /// segments. Returns 0 if the algorithm cuts nothing.
  static constexpr std::uint64_t segmented_bytes(const loggp_model&) { return 0; }
};

/// The base class of each algorithm of colls. `Id` is the number and the name of the algorithm.
template <collective Coll, algorithm Id>
struct built_in : collective_algorithm<Coll> {
  static constexpr algorithm id = Id;
  static constexpr const char* name = colls::name(Id);
  /// The frameless form of the algorithm (see algorithm/frameless.hpp) for the type `Channel`, or
  /// void if there is none. `is_frameless` says which calls use it.
  template <class Channel>
  using frameless = void;
  static constexpr bool is_frameless(const selection_query&) { return true; }
};

namespace detail {

template <collective Coll, class Channel>
constexpr auto algorithm_function_type() {
  using data = any_buffer;
  using std::type_identity;
  if constexpr (Coll == collective::barrier) {
    return type_identity<task<>(Channel)>();
  } else if constexpr (Coll == collective::broadcast) {
    return type_identity<task<>(Channel, data buffer, int root)>();
  } else if constexpr (Coll == collective::all_reduce || Coll == collective::scan ||
                       Coll == collective::exscan) {
    return type_identity<task<>(Channel, data in, data out, any_op op)>();
  } else if constexpr (Coll == collective::reduce) {
    return type_identity<task<>(Channel, data in, data out, int root, any_op op)>();
  } else if constexpr (Coll == collective::reduce_scatter) {
    return type_identity<task<>(Channel, data in, data out, partition parts, any_op op)>();
  } else if constexpr (Coll == collective::all_gather) {
    return type_identity<task<>(Channel, data in, data out, partition parts)>();
  } else if constexpr (Coll == collective::gather) {
    return type_identity<task<>(Channel, data own, data all, partition parts, int root)>();
  } else if constexpr (Coll == collective::scatter) {
    return type_identity<task<>(Channel, data all, data own, partition parts, int root)>();
  } else if constexpr (Coll == collective::all_to_all) {
    return type_identity<task<>(Channel, data in, partition in_parts, data out,
                                partition out_parts)>();
  }
}

}  // namespace detail

/// The type of the function `run` of an algorithm of the collective `Coll`. What every rank holds
/// afterwards is the contract of the collective (see `communicator`). In a reduction, a scan, an
/// all_gather, a gather or a scatter, a rank may pass one buffer, or its part of one buffer, as
/// input and output. Whether it does so must not change the messages and their order, because
/// other ranks may do otherwise. An input that is not the output is only read.
template <collective Coll, class Channel>
using algorithm_function =
    typename decltype(detail::algorithm_function_type<Coll, Channel>())::type;

/// The description of an algorithm, as the selection needs it.
struct algorithm_info {
  collective operation = collective::none;
  algorithm id = algorithm::automatic;
  const char* name = "";
  algorithm_needs needs;
  order reduction_order = order::any;
  bool has_radix = false;
  loggp::phase (*cost)(const loggp_model&, const algorithm_choice&) = nullptr;
  std::uint64_t (*segmented_bytes)(const loggp_model&) = nullptr;
};

namespace detail {

/// The class of an algorithm. (With nvcc, `decltype(Algorithm)` is a reference.)
template <auto Algorithm>
using class_of = std::remove_cvref_t<decltype(Algorithm)>;

/// The description of an algorithm and its function for one channel type.
template <class Function>
struct algorithm_entry : algorithm_info {
  Function* run = nullptr;
};

template <auto Algorithm>
constexpr algorithm_info info_of() {
  return {Algorithm.operation,
          Algorithm.id,
          Algorithm.name,
          Algorithm.needs,
          Algorithm.reduction_order,
          Algorithm.has_radix,
          [](const loggp_model& model, const algorithm_choice& choice) -> loggp::phase {
            return Algorithm.cost(model, choice);
          },
          [](const loggp_model& model) { return Algorithm.segmented_bytes(model); }};
}

/// The entry of an algorithm for the type `Channel`.
template <auto Algorithm, class Channel>
inline constexpr algorithm_entry<algorithm_function<Algorithm.operation, Channel>> entry_of{
    info_of<Algorithm>(), &class_of<Algorithm>::run};

/// Satisfied by an algorithm that has a name.
template <auto Algorithm>
concept named_algorithm = requires {
  { Algorithm.name } -> std::convertible_to<const char*>;
};
/// Satisfied by an algorithm of the collective `Coll`.
template <auto Algorithm, collective Coll>
concept algorithm_for = requires { requires Algorithm.operation == Coll; };
/// Satisfied by an algorithm that predicts its cost.
template <auto Algorithm>
concept priced_algorithm = requires(const loggp_model& model, const algorithm_choice& choice) {
  { Algorithm.cost(model, choice) } -> std::same_as<loggp::phase>;
};
/// Satisfied by an algorithm whose function `run` takes the arguments of its collective.
template <auto Algorithm, class Channel>
concept runnable_algorithm = requires {
  static_cast<algorithm_function<Algorithm.operation, Channel>*>(&class_of<Algorithm>::run);
};

/// Returns the reason why the algorithm cannot perform the call that `query` describes, or null if
/// the algorithm can perform it.
inline const char* refusal(const algorithm_info& info, const selection_query& query) {
  if (info.id == algorithm::native && query.native_obstacle != nullptr)
    return query.native_obstacle;
  if (info.needs.commutative && !query.commutative) {
    return "it sums in an order of its own, and this operation is not commutative";
  }
  if (info.needs.even_ranks && query.ranks % 2 != 0) return "it needs an even number of ranks";
  if (query.reduction_order == order::rank && info.reduction_order != order::rank &&
      query.reduces) {
    return "it does not give the bits of the sequential order, which order::rank and operations "
           "that are not associative ask for; linear does";
  }
  return nullptr;
}

}  // namespace detail

}  // namespace colls
