// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Names of collectives, algorithms and options, shared by options, programs, messages and headers.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace colls {

/// The operation of a call. The values are part of the wire format and never change.
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
};

/// The algorithm of a call. `automatic` (`auto` in programs and JSON) leaves the choice to
/// `tuning`. The values are part of the wire format and never change.
enum class algorithm : std::uint8_t {
  automatic = 0,
  linear,
  ring,
  recursive_doubling,
  recursive_halving,
  binomial_tree,
  knomial_tree,
  double_tree,
  bruck,
  pairwise,
  dissemination,
  circulant,
  chain,
  neighbour_exchange,
  scatter_all_gather,
  reduce_scatter_gather,
  hierarchical,
  direct,
  native,
};

/// The order in which inputs are combined. `any` lets the algorithm choose; `rank` gives the bits
/// of the sequential sum in rank order.
enum class order : std::uint8_t { any = 0, rank };

/// The type of partial sums in messages, for an accumulate type wider than the elements.
/// `accumulate` rounds once at the end. `storage` halves the bytes and rounds at each hop; with
/// `order::rank` it rounds after each addition.
enum class wire : std::uint8_t { accumulate = 0, storage };

/// Returns the name of a collective as in messages, programs and JSON.
constexpr const char* name(collective coll) {
  constexpr const char* names[] = {
      "none",   "barrier", "broadcast",  "all_reduce", "reduce", "reduce_scatter", "all_gather",
      "gather", "scatter", "all_to_all", "scan",       "exscan", "split",          "send",
      "recv",   "measure", "send_recv",  "group",      "dup",    "attach"};
  const auto index = static_cast<std::size_t>(coll);
  return index < sizeof names / sizeof *names ? names[index] : "unknown collective";
}

/// Returns the name of an algorithm as in messages, programs and JSON.
constexpr const char* name(algorithm algo) {
  constexpr const char* names[] = {"auto",
                                   "linear",
                                   "ring",
                                   "recursive_doubling",
                                   "recursive_halving",
                                   "binomial_tree",
                                   "knomial_tree",
                                   "double_tree",
                                   "bruck",
                                   "pairwise",
                                   "dissemination",
                                   "circulant",
                                   "chain",
                                   "neighbour_exchange",
                                   "scatter_all_gather",
                                   "reduce_scatter_gather",
                                   "hierarchical",
                                   "direct",
                                   "native"};
  const auto index = static_cast<std::size_t>(algo);
  return index < sizeof names / sizeof *names ? names[index] : "unknown algorithm";
}

/// Returns the algorithm with that name, or nothing.
constexpr std::optional<algorithm> algorithm_of(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(algorithm::native); ++i) {
    const auto algo = static_cast<algorithm>(i);
    if (text == name(algo)) return algo;
  }
  return std::nullopt;
}

class communicator_state;
class tag_matcher;
struct failure;
struct operation_record;

}  // namespace colls
