// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pin_algorithm: checks at compile time that a call can pin an algorithm of the user's own.

#include <colls/algorithm/table.hpp>

namespace colls::detail {

/// Whether a template argument is an algorithm of the user's own, and not the name of one of colls.
template <auto Pinned>
inline constexpr bool is_custom = !std::is_same_v<class_of<Pinned>, algorithm>;

template <bool Commutes>
constexpr void check_commutes() {
  static_assert(Commutes,
                "colls: this algorithm does not combine the inputs in rank order, so the operation "
                "has to commute: wrap it in colls::commutative, or pin another");
}

/// Returns the description of `Pinned`, an algorithm of the user's own, for calls of the collective
/// `Coll`. `Commutes` says whether the operation of the call commutes. If the call cannot use the
/// algorithm, the compiler prints the reason.
template <class Transport, collective Coll, auto Pinned, bool Commutes = true>
constexpr const algorithm_info* custom_algorithm() {
  constexpr bool is_of_collective = algorithm_for<Pinned, Coll>;
  constexpr bool is_named = named_algorithm<Pinned>;
  constexpr bool is_empty = std::is_empty_v<class_of<Pinned>>;
  constexpr bool is_on_host = std::is_same_v<transport_memory_t<Transport>, host_memory>;
  constexpr bool is_complete = requires { sizeof(Transport); };
  static_assert(
      is_of_collective,
      "colls: this algorithm does not derive from colls::collective_algorithm<C>, where C "
      "is the collective that is called");
  static_assert(is_named,
                "colls: an algorithm of your own needs a name, which all ranks compare: "
                "static constexpr const char* name = \"...\"");
  static_assert(is_empty, "colls: an algorithm of your own has no members that are not static");
  static_assert(is_on_host,
                "colls: an algorithm of your own moves host memory, and this communicator moves "
                "device memory");
  static_assert(is_complete,
                "colls: a file that pins an algorithm of its own compiles it for the transport, so "
                "it includes the transport's header: <colls/interprocess.hpp> for colls::world");
  if constexpr (is_of_collective && is_named && is_empty && is_on_host && is_complete) {
    constexpr bool is_runnable = runnable_algorithm<Pinned, basic_channel<Transport>>;
    constexpr bool is_priced = priced_algorithm<Pinned>;
    static_assert(is_runnable,
                  "colls: the function run of this algorithm does not take the arguments of its "
                  "collective, does not return colls::task<>, or is not static (see "
                  "colls::algorithm_function)");
    static_assert(is_priced,
                  "colls: an algorithm of your own needs a static constexpr function "
                  "cost(const colls::loggp_model&, const colls::algorithm_choice&)");
    static_assert(!algorithm_of(Pinned.name), "colls: an algorithm of colls has this name");
    static_assert(provides<Transport>(Pinned.needs),
                  "colls: this transport does not have what the algorithm needs");
    check_commutes<Commutes || !Pinned.needs.commutative>();
    if constexpr (is_runnable && is_priced) {
      return &entry_of<Pinned, basic_channel<Transport>>;
    }
  }
  return nullptr;
}

}  // namespace colls::detail
