// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The words of colls: the names that options, programs, messages and headers share.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace colls {

/// What a call does. The numbers travel in fingerprints and never change.
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

/// How it is done. `automatic` (`auto` in programs and JSON) leaves the choice to `tuning`.
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

/// `any` lets the algorithm sum in its own order; `rank` asks for the bits of the sequential sum.
enum class order : std::uint8_t { any = 0, rank };

/// With a wide accumulator: what travels between ranks. `accumulate` rounds once at the end,
/// `storage` halves the bytes and rounds at each hop, and with `order::rank` after each addition.
enum class wire : std::uint8_t { accumulate = 0, storage };

constexpr const char* name(collective what) {
  constexpr const char* names[] = {
      "none",   "barrier", "broadcast",  "all_reduce", "reduce", "reduce_scatter", "all_gather",
      "gather", "scatter", "all_to_all", "scan",       "exscan", "split",          "send",
      "recv",   "measure", "send_recv",  "group",      "dup",    "attach"};
  const auto index = static_cast<std::size_t>(what);
  return index < sizeof names / sizeof *names ? names[index] : "unknown collective";
}

constexpr const char* name(algorithm how) {
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
  const auto index = static_cast<std::size_t>(how);
  return index < sizeof names / sizeof *names ? names[index] : "unknown algorithm";
}

/// The algorithm of that name, or nothing.
constexpr std::optional<algorithm> algorithm_of(std::string_view text) {
  for (int i = 0; i <= static_cast<int>(algorithm::native); ++i) {
    const auto how = static_cast<algorithm>(i);
    if (text == name(how)) return how;
  }
  return std::nullopt;
}

class communicator_state;
class match;
struct failure;
struct operation_record;

}  // namespace colls
