// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// algorithm_names: enumerations of the collectives, the algorithms and some of their options, and
// their names in command lines, error messages and JSON.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace colls {

/// The kind of operation that a call performs. The values are part of the wire format and never
/// change.
enum class collective : std::uint8_t {
  none = 0,
  barrier,
  broadcast,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  gather,
  scatter,
  all_to_all,
  scan,
  exscan,
  split,
  send,
  recv,
  measure,
  send_recv,
  group,
  dup,
  attach,
  probe,
  agree,
  shrink,
  repair,
};

namespace detail {

/// Calls `visitor.operator()<What>()`, where `What` is the enumerator that is equal to `coll`. This
/// function is useful if a collective is known only at run time but is needed as a template
/// argument. It does nothing if colls has no algorithms for `coll`, as for `collective::send`.
template <class Visitor>
constexpr void with_collective(collective coll, Visitor visitor) {
  const auto dispatch = [&]<collective... What>() {
    ((coll == What ? visitor.template operator()<What>() : void()), ...);
  };
  dispatch.template
  operator()<collective::barrier, collective::broadcast, collective::all_reduce, collective::reduce,
             collective::reduce_scatter, collective::all_gather, collective::gather,
             collective::scatter, collective::all_to_all, collective::scan, collective::exscan>();
}

}  // namespace detail

// The algorithms of colls, with their numbers. The numbers are part of the wire format and never
// change. A new algorithm gets the next one. `native` is an implementation of a library, such as
// NCCL.
#define COLLS_ALGORITHM_NAMES(ALGORITHM) \
  ALGORITHM(linear, 1)                   \
  ALGORITHM(ring, 2)                     \
  ALGORITHM(recursive_doubling, 3)       \
  ALGORITHM(recursive_halving, 4)        \
  ALGORITHM(binomial_tree, 5)            \
  ALGORITHM(knomial_tree, 6)             \
  ALGORITHM(double_tree, 7)              \
  ALGORITHM(bruck, 8)                    \
  ALGORITHM(pairwise, 9)                 \
  ALGORITHM(dissemination, 10)           \
  ALGORITHM(circulant, 11)               \
  ALGORITHM(chain, 12)                   \
  ALGORITHM(neighbour_exchange, 13)      \
  ALGORITHM(scatter_all_gather, 14)      \
  ALGORITHM(reduce_scatter_gather, 15)   \
  ALGORITHM(hierarchical, 16)            \
  ALGORITHM(direct, 17)                  \
  ALGORITHM(native, 18)

/// The algorithm of a call. `automatic` means that the class `tuning` chooses the algorithm. The
/// name of `automatic` in command lines and JSON is `auto`. `custom` stands for an algorithm of the
/// user's own, which only a template argument of a call can name.
enum class algorithm : std::uint8_t {
  automatic = 0,
#define COLLS_ENUMERATOR(id, number) id = number,
  COLLS_ALGORITHM_NAMES(COLLS_ENUMERATOR)
#undef COLLS_ENUMERATOR
      custom = 255,
};

/// The order in which a reduction combines the inputs. With `any`, the algorithm chooses the order.
/// With `rank`, the result has the same bits as a sequential reduction in rank order.
enum class order : std::uint8_t { any = 0, rank };

/// The type of the partial sums that ranks send to each other. The accumulate type is the type in
/// which a reduction combines elements. The two values differ only if the accumulate type is not
/// the element type. With `accumulate`, messages contain elements of the accumulate type,
/// and only the final sum is rounded to the element type. With `storage`, messages contain elements
/// of the element type. If the elements are float16 or bfloat16 and the accumulate type is float,
/// `storage` halves the size of the messages, but each rank rounds a partial sum before it sends
/// the sum. With `storage` and `order::rank`, the sum is rounded after each addition.
enum class wire : std::uint8_t { accumulate = 0, storage };

/// Returns the name of a collective as it appears in error messages, command lines and JSON.
constexpr const char* name(collective coll) {
  constexpr const char* names[] = {
      "none",       "barrier", "broadcast", "all_reduce", "reduce",    "reduce_scatter",
      "all_gather", "gather",  "scatter",   "all_to_all", "scan",      "exscan",
      "split",      "send",    "recv",      "measure",    "send_recv", "group",
      "dup",        "attach",  "probe",     "agree",      "shrink",    "repair"};
  const auto index = static_cast<std::size_t>(coll);
  return index < sizeof names / sizeof *names ? names[index] : "unknown collective";
}

/// Returns the name of an algorithm as it appears in error messages, command lines and JSON.
constexpr const char* name(algorithm algo) {
  switch (algo) {
    case algorithm::automatic:
      return "auto";
    case algorithm::custom:
      return "custom";
#define COLLS_NAME(id, number) \
  case algorithm::id:          \
    return #id;
      COLLS_ALGORITHM_NAMES(COLLS_NAME)
#undef COLLS_NAME
  }
  return "unknown algorithm";
}

/// Returns the algorithm with the name `text`, or `std::nullopt` if no algorithm of colls has this
/// name.
constexpr std::optional<algorithm> algorithm_of(std::string_view text) {
  if (text == name(algorithm::automatic)) return algorithm::automatic;
#define COLLS_NAMED(id, number) \
  if (text == #id) return algorithm::id;
  COLLS_ALGORITHM_NAMES(COLLS_NAMED)
#undef COLLS_NAMED
  return std::nullopt;
}
#undef COLLS_ALGORITHM_NAMES

class communicator_state;
class tag_matcher;
struct failure;
struct operation_record;

}  // namespace colls
