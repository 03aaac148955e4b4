// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// closed_forms: the cost of every algorithm in closed form: messages and their payload bytes,
// summed over all ranks, and rounds. Rounds are the length of the longest chain of messages in
// which each depends on the one before: its sender received that one, in the same lane, before it
// sent. The table of docs/algorithms.md.

#include <colls/base/algorithm_names.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern/circulant.hpp>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace closed_forms {

using colls::algorithm;
using colls::collective;

struct cost {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint64_t rounds = 0;

  friend constexpr bool operator==(const cost&, const cost&) = default;
};

/// The values of a call on which its cost depends.
struct call {
  colls::partition parts;   // of the vector; all_to_all: of one rank's vector
  std::size_t element = 1;  // bytes of an element
  int root = 0;
  bool commutative = true;
  std::uint64_t segment = 0;
  int lanes = 1;
  int radix = 4;
  std::vector<int> nodes{};  // the number of ranks of each; empty: one node of all
  bool has_windows = false;  // of the transport; nothing is exposed, so direct sends messages

  int ranks() const { return parts.ranks(); }
  std::uint64_t bytes() const { return parts.total() * element; }
  std::uint64_t share(int rank) const { return parts.count(rank) * element; }
  int relative(int rank) const { return (rank - root + ranks()) % ranks(); }

  /// Returns the number of segments of a part whose longest piece has that many bytes.
  std::uint64_t segments(std::uint64_t longest) const {
    return segment == 0 || longest <= segment ? 1 : (longest + segment - 1) / segment;
  }
  /// Returns the number of segments of one half of the buffer.
  std::uint64_t segments_of_half(int i) const {
    return segments(colls::partition(parts.total(), 2).count(i) * element);
  }
  std::uint64_t segments_of_halves() const { return segments_of_half(0) + segments_of_half(1); }
  /// Returns how many pieces follow each other in one lane.
  std::uint64_t in_turn(std::uint64_t pieces) const {
    const auto width = static_cast<std::uint64_t>(lanes);
    return (pieces + width - 1) / width;
  }
};

inline std::uint64_t number(int n) { return static_cast<std::uint64_t>(n); }
inline int floor_log2(int n) { return static_cast<int>(std::bit_width(unsigned(n))) - 1; }
inline int ceil_log2(int n) { return static_cast<int>(std::bit_width(unsigned(n - 1))); }

/// The hypercube of recursive doubling and halving has 2^dimension corners. The ranks left over
/// send their part to a corner first and receive the result from it at the end.
struct hypercube {
  int dimension;
  int left_over;

  explicit hypercube(int p) : dimension(floor_log2(p)), left_over(p - (1 << floor_log2(p))) {}

  std::uint64_t corners() const { return 1ULL << dimension; }
  std::uint64_t exchanges() const { return corners() * number(dimension); }
  std::uint64_t fold_messages() const { return 2 * number(left_over); }
  /// A path across the cube. A fold makes it longer at its start, and also at its end if the
  /// opposite corner has a fold as well.
  std::uint64_t rounds() const {
    const int ends = left_over == 0 ? 0 : 2 * left_over > (1 << dimension) ? 2 : 1;
    return number(dimension + ends);
  }
  /// The chunks of all ranks to all ranks, or the other way: the buffer, and a chunk for each fold.
  cost exchange_of_chunks(const call& query) const {
    cost sum{exchanges() + fold_messages(), (corners() - 1 + number(left_over)) * query.bytes(),
             rounds()};
    for (int i = 0; i < left_over; ++i) sum.bytes += query.share(2 * i);
    return sum;
  }
};

/// Exchanges with the ranks 1, ..., k-1 steps of 1, k, k^2, ... away.
struct radix_exchange {
  std::uint64_t rounds = 0;
  std::uint64_t peers = 0;  // of a rank

  radix_exchange(int p, int radix) {
    for (std::uint64_t step = 1; step < number(p); step *= number(radix)) {
      ++rounds;
      peers += std::min((number(p) - 1) / step, number(radix) - 1);
    }
  }
};
/// Returns the number of such hops that make up a distance: the digits of it that are not 0.
inline std::uint64_t hops(int distance, int radix) {
  std::uint64_t digits = 0;
  for (; distance > 0; distance /= radix) digits += distance % radix != 0;
  return digits;
}
/// Returns the sum of the hops from one rank to all others.
inline std::uint64_t hops_to_all(int p, int radix) {
  std::uint64_t sum = 0;
  for (int distance = 1; distance < p; ++distance) sum += hops(distance, radix);
  return sum;
}

/// The levels of a k-nomial tree: the digits 1 that a number below p can have.
inline std::uint64_t tree_depth(int p, int radix) {
  std::uint64_t depth = 0;
  for (std::uint64_t ones = 1; ones < number(p); ones = ones * number(radix) + 1) ++depth;
  return depth;
}

/// The levels of the two trees of double_tree. The second one is at least as deep.
inline std::uint64_t first_depth(int p) { return p < 2 ? 0 : number(1 + floor_log2(p - 1)); }
inline std::uint64_t second_depth(int p) {
  return p < 3 ? number(p - 1) : number(2 + floor_log2(p - 2));
}

namespace detail {

inline std::optional<cost> barrier(algorithm algo, const call& query) {
  const int p = query.ranks();
  switch (algo) {
    case algorithm::linear:
      return cost{2 * number(p - 1), 0, p > 1 ? 2U : 0U};
    case algorithm::binomial_tree:
      return cost{2 * number(p - 1), 0, 2 * tree_depth(p, 2)};
    case algorithm::dissemination:
      return cost{number(p) * radix_exchange(p, query.radix).peers, 0,
                  radix_exchange(p, query.radix).rounds};
    case algorithm::direct:
      return cost{};
    default:
      return {};
  }
}

inline std::optional<cost> gather(algorithm algo, const call& query) {
  const int p = query.ranks();
  cost sum{number(p - 1), 0, p > 1};
  if (algo != algorithm::linear && algo != algorithm::binomial_tree) return {};
  if (algo == algorithm::binomial_tree) sum.rounds = number(floor_log2(p));
  for (int rank = 0; rank < p; ++rank) {
    const auto from_root = unsigned(query.relative(rank));
    sum.bytes += query.share(rank) *
                 number(algo == algorithm::linear ? from_root != 0 : std::popcount(from_root));
  }
  return sum;
}

/// The algorithms of reduce_scatter and all_gather that have the same cost in both.
inline std::optional<cost> chunks_between_all(algorithm algo, const call& query) {
  const int p = query.ranks();
  const std::uint64_t all = number(p) * number(p - 1);
  const std::uint64_t bytes = number(p - 1) * query.bytes();
  switch (algo) {
    case algorithm::linear:
      return cost{all, bytes, p > 1};
    case algorithm::ring: {
      const std::uint64_t pieces = query.segments(query.parts.longest() * query.element);
      return cost{all * pieces, bytes, number(p - 1) * query.in_turn(pieces)};
    }
    case algorithm::circulant:
      return cost{number(p) * number(ceil_log2(p)), bytes, number(ceil_log2(p))};
    default:
      return {};
  }
}

inline std::optional<cost> all_gather(algorithm algo, const call& query) {
  const int p = query.ranks();
  const std::uint64_t bytes = number(p - 1) * query.bytes();
  switch (algo) {
    case algorithm::recursive_doubling:
      return hypercube(p).exchange_of_chunks(query);
    case algorithm::neighbour_exchange:
      return cost{number(p) * (number(p) / 2), bytes, number(p) / 2};
    case algorithm::bruck:
      return cost{number(p) * radix_exchange(p, query.radix).peers, bytes,
                  radix_exchange(p, query.radix).rounds};
    default:
      return chunks_between_all(algo, query);
  }
}

inline std::optional<cost> reduce_scatter(algorithm algo, const call& query) {
  const int p = query.ranks();
  switch (algo) {
    case algorithm::recursive_halving:
      return hypercube(p).exchange_of_chunks(query);
    case algorithm::pairwise:
      return cost{number(p) * number(p - 1), number(p - 1) * query.bytes(), number(p - 1)};
    default:
      return chunks_between_all(algo, query);
  }
}

/// The longest chain is at most segments - 1 + ceil(log2 p). Its length is not regular, so it is
/// found by running the schedule.
inline std::uint64_t circulant_rounds(const call& query, std::uint64_t segments) {
  using pattern = colls::pattern::circulant_broadcast;
  const auto graph = [&](int rank) {
    return pattern(rank, query.ranks(), query.root, static_cast<int>(segments));
  };
  std::vector<pattern> graphs;
  for (int rank = 0; rank < query.ranks(); ++rank) graphs.push_back(graph(rank));
  std::vector<std::uint64_t> heard(graphs.size());
  std::uint64_t longest = 0;
  for (int round = 0; round < graphs[0].rounds; ++round) {
    const std::vector<std::uint64_t> before = heard;
    for (std::size_t rank = 0; rank < graphs.size(); ++rank) {
      if (graphs[rank].received(round) < 0) continue;
      const std::uint64_t chain = before[static_cast<std::size_t>(graphs[rank].source(round))] + 1;
      heard[rank] = std::max(heard[rank], chain);
      longest = std::max(longest, chain);
    }
  }
  return longest;
}

inline std::optional<cost> broadcast(algorithm algo, const call& query) {
  const int p = query.ranks();
  const std::uint64_t segments = query.segments(query.bytes());
  const cost tree{number(p - 1), number(p - 1) * query.bytes(), 0};
  switch (algo) {
    case algorithm::linear:
      return cost{tree.messages, tree.bytes, p > 1};
    case algorithm::binomial_tree:
      return cost{tree.messages, tree.bytes, tree_depth(p, 2)};
    case algorithm::knomial_tree:
      return cost{tree.messages, tree.bytes, tree_depth(p, query.radix)};
    case algorithm::scatter_all_gather: {
      const cost first = *gather(algorithm::binomial_tree, query);
      const cost second = *all_gather(algorithm::ring, query);
      // The rank that the tree reaches last delays the whole ring.
      return cost{first.messages + second.messages, first.bytes + second.bytes,
                  first.rounds + second.rounds};
    }
    case algorithm::chain:
      return cost{tree.messages * segments, tree.bytes, number(p - 1)};
    case algorithm::double_tree:
      return cost{tree.messages * query.segments_of_halves(), tree.bytes, second_depth(p)};
    case algorithm::circulant:
      return cost{tree.messages * segments, tree.bytes, circulant_rounds(query, segments)};
    default:
      return {};
  }
}

inline std::optional<cost> reduce(algorithm algo, const call& query) {
  const int p = query.ranks();
  // In rank order the tree has rank 0 as its root, which sends the sum on.
  const std::uint64_t extra = !query.commutative && query.root != 0;
  switch (algo) {
    case algorithm::linear:
      return cost{number(p - 1), number(p - 1) * query.bytes(), p > 1};
    case algorithm::binomial_tree:
    case algorithm::knomial_tree:
      return cost{number(p - 1) + extra, (number(p - 1) + extra) * query.bytes(),
                  tree_depth(p, algo == algorithm::binomial_tree ? 2 : query.radix) + extra};
    case algorithm::reduce_scatter_gather: {
      const cost first = *reduce_scatter(algorithm::circulant, query);
      const cost second = *gather(algorithm::binomial_tree, query);
      return cost{first.messages + second.messages, first.bytes + second.bytes,
                  first.rounds + second.rounds};
    }
    case algorithm::chain: {
      const int longest = query.commutative ? p - 1 : std::max(query.root, p - 1 - query.root);
      return cost{number(p - 1) * query.segments(query.bytes()), number(p - 1) * query.bytes(),
                  number(longest)};
    }
    case algorithm::double_tree:
      return cost{number(p - 1) * query.segments_of_halves(), number(p - 1) * query.bytes(),
                  second_depth(p)};
    default:
      return {};
  }
}

inline std::optional<cost> all_reduce(algorithm algo, const call& query) {
  const int p = query.ranks();
  const hypercube cube(p);
  switch (algo) {
    case algorithm::linear:
      return cost{2 * number(p - 1), 2 * number(p - 1) * query.bytes(), p > 1 ? 2U : 0U};
    case algorithm::ring: {
      const std::uint64_t pieces = query.segments(query.parts.longest() * query.element);
      return cost{2 * number(p) * number(p - 1) * pieces, 2 * number(p - 1) * query.bytes(),
                  2 * number(p - 1) * query.in_turn(pieces)};
    }
    case algorithm::recursive_doubling: {
      const std::uint64_t messages = cube.exchanges() + cube.fold_messages();
      return cost{messages, messages * query.bytes(), cube.rounds()};
    }
    case algorithm::recursive_halving:
      return cost{2 * cube.exchanges() + cube.fold_messages(),
                  2 * (cube.corners() - 1 + number(cube.left_over)) * query.bytes(),
                  2 * number(cube.dimension) + (cube.left_over > 0 ? 2U : 0U)};
    case algorithm::double_tree:
      return cost{2 * number(p - 1) * query.segments_of_halves(), 2 * number(p - 1) * query.bytes(),
                  2 * std::max(first_depth(p) * query.in_turn(query.segments_of_half(0)),
                               second_depth(p) * query.in_turn(query.segments_of_half(1)))};
    case algorithm::circulant:
      return cost{2 * number(p) * number(ceil_log2(p)), 2 * number(p - 1) * query.bytes(),
                  2 * number(ceil_log2(p))};
    case algorithm::hierarchical: {
      const std::vector<int> nodes = query.nodes.empty() ? std::vector<int>{p} : query.nodes;
      const int across = static_cast<int>(nodes.size());
      const int largest = *std::max_element(nodes.begin(), nodes.end());
      const int sharing = *std::min_element(nodes.begin(), nodes.end());
      cost sum{2 * number(sharing) * number(across) * number(ceil_log2(across)),
               2 * number(across - 1) * query.bytes(),
               2 * number(ceil_log2(across) + ceil_log2(largest))};
      for (const int ranks : nodes) {
        sum.messages += 2 * number(ranks) * number(ceil_log2(ranks));
        sum.bytes += 2 * number(ranks - 1) * query.bytes();
      }
      return sum;
    }
    case algorithm::direct:
      return cost{};
    default:
      return {};
  }
}

inline std::optional<cost> all_to_all(algorithm algo, const call& query) {
  const int p = query.ranks();
  const cost once{number(p) * number(p - 1), number(p - 1) * query.bytes(), p > 1};
  switch (algo) {
    case algorithm::linear:
      return once;
    case algorithm::pairwise:
      return cost{once.messages, once.bytes, number(p - 1)};
    case algorithm::bruck:
      return cost{number(p) * radix_exchange(p, query.radix).peers,
                  hops_to_all(p, query.radix) * query.bytes(),
                  radix_exchange(p, query.radix).rounds};
    default:
      return {};
  }
}

inline std::optional<cost> scan(algorithm algo, const call& query) {
  const int p = query.ranks();
  const std::uint64_t chain = number(p - 1);
  switch (algo) {
    case algorithm::linear:
      return cost{chain, chain * query.bytes(), chain};
    case algorithm::chain:
      return cost{chain * query.segments(query.bytes()), chain * query.bytes(), chain};
    case algorithm::recursive_doubling: {
      cost sum{0, 0, number(floor_log2(p))};
      for (int far = 1; far < p; far *= 2) sum.messages += number(p - far);
      sum.bytes = sum.messages * query.bytes();
      return sum;
    }
    default:
      return {};
  }
}

inline std::optional<cost> exscan(algorithm algo, const call& query) {
  const int p = query.ranks();
  if (algo != algorithm::recursive_doubling || p == 1) return scan(algo, query);
  call above_first = query;
  above_first.parts = colls::partition(query.parts.total(), p - 1);
  cost sum = *scan(algo, above_first);
  sum.messages += number(p - 1);
  sum.bytes += number(p - 1) * query.bytes();
  ++sum.rounds;
  return sum;
}

}  // namespace detail

inline std::optional<cost> direct_long(collective coll, const call& query);

/// all_to_all_v where rank i has `bytes(i, j)` for rank j. bruck sends the lengths, 8 bytes each,
/// ahead of every message.
template <class Bytes>
std::optional<cost> all_to_all_v(algorithm algo, int ranks, int radix, const Bytes& bytes) {
  call query{colls::partition(0, ranks)};
  query.radix = radix;
  std::optional<cost> sum = algo == algorithm::direct ? direct_long(collective::all_to_all, query)
                                                      : detail::all_to_all(algo, query);
  if (!sum) return sum;
  const bool by_hops = algo == algorithm::bruck;
  for (int source = 0; source < ranks; ++source) {
    for (int dest = 0; dest < ranks; ++dest) {
      if (source == dest) continue;
      const std::uint64_t times = by_hops ? hops((dest - source + ranks) % ranks, radix) : 1;
      sum->bytes += times * bytes(source, dest);
    }
  }
  if (by_hops) {
    sum->messages *= 2;
    sum->rounds *= 2;
    sum->bytes += 8 * number(ranks) * hops_to_all(ranks, radix);
  }
  return sum;
}

/// Returns whether direct takes one round, in which all data goes to the ranks that need it.
inline bool is_short_vector(collective coll, const call& query) {
  const std::uint64_t p = number(query.ranks());
  switch (coll) {
    case collective::barrier:
      return true;
    case collective::all_gather:
    case collective::all_to_all:
      return query.bytes() <= 32768;
    case collective::gather:
    case collective::scatter:
      return query.bytes() <= 16384 * p;
    case collective::broadcast:
      return query.bytes() * p <= 32768;
    case collective::reduce_scatter:
      return query.bytes() <= 16384;
    default:
      return query.bytes() * p <= 16384;
  }
}
inline std::optional<cost> direct_short(collective coll, const call& query) {
  const std::uint64_t others = number(query.ranks() - 1);
  const std::uint64_t pairs = number(query.ranks()) * others;
  switch (coll) {
    case collective::barrier:
      return cost{pairs, 0, 1};
    case collective::all_reduce:
      return cost{pairs, pairs * query.bytes(), 1};
    case collective::reduce_scatter:
    case collective::all_gather:
    case collective::all_to_all:
      return cost{pairs, others * query.bytes(), 1};
    case collective::broadcast:
    case collective::reduce:
      return cost{others, others * query.bytes(), 1};
    case collective::gather:
    case collective::scatter:
      return cost{others, query.bytes() - query.share(query.root), 1};
    case collective::scan:
    case collective::exscan:
      return cost{pairs / 2, pairs / 2 * query.bytes(), 1};
    default:
      return {};
  }
}

/// direct between processes, where nothing is exposed: a window descriptor of three numbers for
/// each pair of ranks, and then the data.
inline std::optional<cost> direct_long(collective coll, const call& query) {
  const int p = query.ranks();
  if (p == 1) return cost{};
  const std::uint64_t others = number(p - 1);
  const std::uint64_t pairs = number(p) * others;
  const std::uint64_t pieces = query.segments(query.parts.longest() * query.element);
  const std::uint64_t elements = std::max<std::uint64_t>(2 * 1024 * 1024 / query.element, 1);
  const std::uint64_t scan_pieces =
      std::max<std::uint64_t>((query.parts.total() + elements - 1) / elements, 1);
  constexpr std::uint64_t descriptor = 3 * 8;
  cost sum{pairs, pairs * descriptor, 1 + query.in_turn(pieces)};
  const auto add = [&](std::uint64_t messages, std::uint64_t bytes) {
    sum.messages += messages;
    sum.bytes += bytes;
  };
  switch (coll) {
    case collective::all_reduce:
      // Each piece exchanges descriptors of its own.
      return cost{3 * pairs * pieces, pairs * descriptor * pieces + 2 * others * query.bytes(),
                  2 * query.in_turn(pieces)};
    case collective::reduce_scatter:
      add(pairs * pieces, others * query.bytes());
      return sum;
    case collective::reduce:
      if (p == 2 ? query.bytes() <= 32768 : others * query.bytes() < 262144) {
        return cost{2 * others, others * (descriptor + query.bytes()), 1};
      }
      if (p == 2) return cost{pairs + 1, pairs * descriptor + query.bytes(), 2};
      add(pairs * pieces, others * query.bytes());
      add(others * pieces, query.bytes() - query.share(query.root));
      return sum;
    case collective::all_gather:
      add(pairs, others * query.bytes());
      sum.rounds = 2;
      return sum;
    case collective::broadcast:
      return cost{2 * others, others * (descriptor + query.bytes()), 1};
    case collective::gather:
    case collective::scatter:
      return cost{3 * others, 2 * others * descriptor + query.bytes() - query.share(query.root), 2};
    case collective::all_to_all:
      return cost{2 * pairs, pairs * descriptor + others * query.bytes(), 2};
    case collective::scan:
    case collective::exscan:
      return cost{pairs + others * scan_pieces, pairs * descriptor + others * query.bytes(),
                  others};
    default:
      return {};
  }
}

/// Returns the cost, or nothing if the collective does not have the algorithm.
inline std::optional<cost> of(collective coll, algorithm algo, const call& query) {
  if (algo == algorithm::direct && query.has_windows) {
    const bool is_short = query.ranks() > 1 && is_short_vector(coll, query);
    return is_short ? direct_short(coll, query) : direct_long(coll, query);
  }
  switch (coll) {
    case collective::barrier:
      return detail::barrier(algo, query);
    case collective::broadcast:
      return detail::broadcast(algo, query);
    case collective::reduce:
      return detail::reduce(algo, query);
    case collective::all_reduce:
      return detail::all_reduce(algo, query);
    case collective::reduce_scatter:
      return detail::reduce_scatter(algo, query);
    case collective::all_gather:
      return detail::all_gather(algo, query);
    case collective::gather:
    case collective::scatter:
      return detail::gather(algo, query);
    case collective::all_to_all:
      return detail::all_to_all(algo, query);
    case collective::scan:
      return detail::scan(algo, query);
    case collective::exscan:
      return detail::exscan(algo, query);
    default:
      return {};
  }
}

}  // namespace closed_forms
