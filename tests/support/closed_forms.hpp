// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What every algorithm costs, in closed form: messages and their payload bytes, summed over all
// ranks, and rounds, the longest chain of messages of which each depends on the one before (one
// that its sender received, in that lane, before it sent). The table of docs/algorithms.md.

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

/// A call, as far as its cost depends on it.
struct call {
  colls::partition parts;   // whose elements make up the vector; all_to_all: one rank's
  std::size_t element = 1;  // its bytes
  int root = 0;
  bool commutative = true;
  std::uint64_t segment = 0;
  int lanes = 1;
  int radix = 4;
  std::vector<int> nodes{};  // how many ranks each has; none: one node of all
  bool lends = false;        // the transport lends, and nothing was lent: direct goes by messages

  int ranks() const { return parts.ranks(); }
  std::uint64_t bytes() const { return parts.total() * element; }
  std::uint64_t share(int rank) const { return parts.count(rank) * element; }
  int relative(int rank) const { return (rank - root + ranks()) % ranks(); }

  /// Into how many segments the longest of `pieces` equal parts of the buffer is cut.
  std::uint64_t segments(std::uint64_t longest) const {
    return segment == 0 || longest <= segment ? 1 : (longest + segment - 1) / segment;
  }
  /// The same for the halves of the buffer.
  std::uint64_t segments_of_half(int i) const {
    return segments(colls::partition(parts.total(), 2).count(i) * element);
  }
  std::uint64_t segments_of_halves() const { return segments_of_half(0) + segments_of_half(1); }
  /// How many of them follow each other in one lane.
  std::uint64_t in_turn(std::uint64_t pieces) const {
    const auto width = static_cast<std::uint64_t>(lanes);
    return (pieces + width - 1) / width;
  }
};

inline std::uint64_t number(int n) { return static_cast<std::uint64_t>(n); }
inline int floor_log2(int n) { return static_cast<int>(std::bit_width(unsigned(n))) - 1; }
inline int ceil_log2(int n) { return static_cast<int>(std::bit_width(unsigned(n - 1))); }

/// The hypercube of recursive doubling and halving: 2^dimension corners; the ranks left over give
/// their part to one of them first and get the result from it at the end.
struct hypercube {
  int dimension;
  int left_over;

  explicit hypercube(int p) : dimension(floor_log2(p)), left_over(p - (1 << floor_log2(p))) {}

  std::uint64_t corners() const { return 1ULL << dimension; }
  std::uint64_t exchanges() const { return corners() * number(dimension); }
  std::uint64_t fold_messages() const { return 2 * number(left_over); }
  /// A walk across the cube, made longer by a giver at its start, and at its end too if the corner
  /// opposite one that took has taken as well.
  std::uint64_t rounds() const {
    const int ends = left_over == 0 ? 0 : 2 * left_over > (1 << dimension) ? 2 : 1;
    return number(dimension + ends);
  }
  /// Everybody's chunk to everybody, or the other way: the buffer, and a chunk for each that folds.
  cost exchange_of_chunks(const call& of) const {
    cost sum{exchanges() + fold_messages(), (corners() - 1 + number(left_over)) * of.bytes(),
             rounds()};
    for (int i = 0; i < left_over; ++i) sum.bytes += of.share(2 * i);
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
/// Hops of those lengths that make up a distance: the digits of its number that are not 0.
inline std::uint64_t hops(int distance, int radix) {
  std::uint64_t digits = 0;
  for (; distance > 0; distance /= radix) digits += distance % radix != 0;
  return digits;
}
/// Those from one rank to all others.
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

/// The levels of the two trees of double_tree. The second one is not less deep.
inline std::uint64_t first_depth(int p) { return p < 2 ? 0 : number(1 + floor_log2(p - 1)); }
inline std::uint64_t second_depth(int p) {
  return p < 3 ? number(p - 1) : number(2 + floor_log2(p - 2));
}

namespace detail {

inline std::optional<cost> barrier(algorithm how, const call& of) {
  const int p = of.ranks();
  switch (how) {
    case algorithm::linear:
      return cost{2 * number(p - 1), 0, p > 1 ? 2U : 0U};
    case algorithm::binomial_tree:
      return cost{2 * number(p - 1), 0, 2 * tree_depth(p, 2)};
    case algorithm::dissemination:
      return cost{number(p) * radix_exchange(p, of.radix).peers, 0,
                  radix_exchange(p, of.radix).rounds};
    case algorithm::direct:
      return cost{};
    default:
      return {};
  }
}

inline std::optional<cost> gather(algorithm how, const call& of) {
  const int p = of.ranks();
  cost sum{number(p - 1), 0, p > 1};
  if (how != algorithm::linear && how != algorithm::binomial_tree) return {};
  if (how == algorithm::binomial_tree) sum.rounds = number(floor_log2(p));
  for (int rank = 0; rank < p; ++rank) {
    const auto from_root = unsigned(of.relative(rank));
    sum.bytes += of.share(rank) *
                 number(how == algorithm::linear ? from_root != 0 : std::popcount(from_root));
  }
  return sum;
}

/// Those of reduce_scatter and all_gather that move each chunk to or from all other ranks alike.
inline std::optional<cost> chunks_between_all(algorithm how, const call& of) {
  const int p = of.ranks();
  const std::uint64_t all = number(p) * number(p - 1);
  const std::uint64_t bytes = number(p - 1) * of.bytes();
  switch (how) {
    case algorithm::linear:
      return cost{all, bytes, p > 1};
    case algorithm::ring: {
      const std::uint64_t pieces = of.segments(of.parts.longest() * of.element);
      return cost{all * pieces, bytes, number(p - 1) * of.in_turn(pieces)};
    }
    case algorithm::circulant:
      return cost{number(p) * number(ceil_log2(p)), bytes, number(ceil_log2(p))};
    default:
      return {};
  }
}

inline std::optional<cost> all_gather(algorithm how, const call& of) {
  const int p = of.ranks();
  const std::uint64_t bytes = number(p - 1) * of.bytes();
  switch (how) {
    case algorithm::recursive_doubling:
      return hypercube(p).exchange_of_chunks(of);
    case algorithm::neighbour_exchange:
      return cost{number(p) * (number(p) / 2), bytes, number(p) / 2};
    case algorithm::bruck:
      return cost{number(p) * radix_exchange(p, of.radix).peers, bytes,
                  radix_exchange(p, of.radix).rounds};
    default:
      return chunks_between_all(how, of);
  }
}

inline std::optional<cost> reduce_scatter(algorithm how, const call& of) {
  const int p = of.ranks();
  switch (how) {
    case algorithm::recursive_halving:
      return hypercube(p).exchange_of_chunks(of);
    case algorithm::pairwise:
      return cost{number(p) * number(p - 1), number(p - 1) * of.bytes(), number(p - 1)};
    default:
      return chunks_between_all(how, of);
  }
}

/// The longest chain is at most segments - 1 + ceil(log2 p), and its length is not regular: it is
/// found by playing the schedule.
inline std::uint64_t circulant_rounds(const call& of, std::uint64_t segments) {
  using pattern = colls::pattern::circulant_broadcast;
  const auto graph = [&](int rank) {
    return pattern(rank, of.ranks(), of.root, static_cast<int>(segments));
  };
  std::vector<pattern> graphs;
  for (int rank = 0; rank < of.ranks(); ++rank) graphs.push_back(graph(rank));
  std::vector<std::uint64_t> heard(graphs.size());
  std::uint64_t longest = 0;
  for (int round = 0; round < graphs[0].rounds; ++round) {
    const std::vector<std::uint64_t> before = heard;
    for (std::size_t rank = 0; rank < graphs.size(); ++rank) {
      if (graphs[rank].taken(round) < 0) continue;
      const std::uint64_t chain = before[static_cast<std::size_t>(graphs[rank].from(round))] + 1;
      heard[rank] = std::max(heard[rank], chain);
      longest = std::max(longest, chain);
    }
  }
  return longest;
}

inline std::optional<cost> broadcast(algorithm how, const call& of) {
  const int p = of.ranks();
  const std::uint64_t segments = of.segments(of.bytes());
  const cost tree{number(p - 1), number(p - 1) * of.bytes(), 0};
  switch (how) {
    case algorithm::linear:
      return cost{tree.messages, tree.bytes, p > 1};
    case algorithm::binomial_tree:
      return cost{tree.messages, tree.bytes, tree_depth(p, 2)};
    case algorithm::knomial_tree:
      return cost{tree.messages, tree.bytes, tree_depth(p, of.radix)};
    case algorithm::scatter_all_gather: {
      const cost first = *gather(algorithm::binomial_tree, of);
      const cost second = *all_gather(algorithm::ring, of);
      // Whoever the tree reaches last lets the whole ring wait.
      return cost{first.messages + second.messages, first.bytes + second.bytes,
                  first.rounds + second.rounds};
    }
    case algorithm::chain:
      return cost{tree.messages * segments, tree.bytes, number(p - 1)};
    case algorithm::double_tree:
      return cost{tree.messages * of.segments_of_halves(), tree.bytes, second_depth(p)};
    case algorithm::circulant:
      return cost{tree.messages * segments, tree.bytes, circulant_rounds(of, segments)};
    default:
      return {};
  }
}

inline std::optional<cost> reduce(algorithm how, const call& of) {
  const int p = of.ranks();
  // In rank order a tree stands around rank 0, which sends the sum on.
  const std::uint64_t on = !of.commutative && of.root != 0;
  switch (how) {
    case algorithm::linear:
      return cost{number(p - 1), number(p - 1) * of.bytes(), p > 1};
    case algorithm::binomial_tree:
    case algorithm::knomial_tree:
      return cost{number(p - 1) + on, (number(p - 1) + on) * of.bytes(),
                  tree_depth(p, how == algorithm::binomial_tree ? 2 : of.radix) + on};
    case algorithm::reduce_scatter_gather: {
      const cost first = *reduce_scatter(algorithm::circulant, of);
      const cost second = *gather(algorithm::binomial_tree, of);
      return cost{first.messages + second.messages, first.bytes + second.bytes,
                  first.rounds + second.rounds};
    }
    case algorithm::chain: {
      const int longest = of.commutative ? p - 1 : std::max(of.root, p - 1 - of.root);
      return cost{number(p - 1) * of.segments(of.bytes()), number(p - 1) * of.bytes(),
                  number(longest)};
    }
    case algorithm::double_tree:
      return cost{number(p - 1) * of.segments_of_halves(), number(p - 1) * of.bytes(),
                  second_depth(p)};
    default:
      return {};
  }
}

inline std::optional<cost> all_reduce(algorithm how, const call& of) {
  const int p = of.ranks();
  const hypercube cube(p);
  switch (how) {
    case algorithm::linear:
      return cost{2 * number(p - 1), 2 * number(p - 1) * of.bytes(), p > 1 ? 2U : 0U};
    case algorithm::ring: {
      const std::uint64_t pieces = of.segments(of.parts.longest() * of.element);
      return cost{2 * number(p) * number(p - 1) * pieces, 2 * number(p - 1) * of.bytes(),
                  2 * number(p - 1) * of.in_turn(pieces)};
    }
    case algorithm::recursive_doubling: {
      const std::uint64_t messages = cube.exchanges() + cube.fold_messages();
      return cost{messages, messages * of.bytes(), cube.rounds()};
    }
    case algorithm::recursive_halving:
      return cost{2 * cube.exchanges() + cube.fold_messages(),
                  2 * (cube.corners() - 1 + number(cube.left_over)) * of.bytes(),
                  2 * number(cube.dimension) + (cube.left_over > 0 ? 2U : 0U)};
    case algorithm::double_tree:
      return cost{2 * number(p - 1) * of.segments_of_halves(), 2 * number(p - 1) * of.bytes(),
                  2 * std::max(first_depth(p) * of.in_turn(of.segments_of_half(0)),
                               second_depth(p) * of.in_turn(of.segments_of_half(1)))};
    case algorithm::circulant:
      return cost{2 * number(p) * number(ceil_log2(p)), 2 * number(p - 1) * of.bytes(),
                  2 * number(ceil_log2(p))};
    case algorithm::hierarchical: {
      const std::vector<int> nodes = of.nodes.empty() ? std::vector<int>{p} : of.nodes;
      const int across = static_cast<int>(nodes.size());
      const int largest = *std::max_element(nodes.begin(), nodes.end());
      const int sharing = *std::min_element(nodes.begin(), nodes.end());
      cost sum{2 * number(sharing) * number(across) * number(ceil_log2(across)),
               2 * number(across - 1) * of.bytes(),
               2 * number(ceil_log2(across) + ceil_log2(largest))};
      for (const int ranks : nodes) {
        sum.messages += 2 * number(ranks) * number(ceil_log2(ranks));
        sum.bytes += 2 * number(ranks - 1) * of.bytes();
      }
      return sum;
    }
    case algorithm::direct:
      return cost{};
    default:
      return {};
  }
}

inline std::optional<cost> all_to_all(algorithm how, const call& of) {
  const int p = of.ranks();
  const cost once{number(p) * number(p - 1), number(p - 1) * of.bytes(), p > 1};
  switch (how) {
    case algorithm::linear:
      return once;
    case algorithm::pairwise:
      return cost{once.messages, once.bytes, number(p - 1)};
    case algorithm::bruck:
      return cost{number(p) * radix_exchange(p, of.radix).peers,
                  hops_to_all(p, of.radix) * of.bytes(), radix_exchange(p, of.radix).rounds};
    default:
      return {};
  }
}

inline std::optional<cost> scan(algorithm how, const call& of) {
  const int p = of.ranks();
  const std::uint64_t chain = number(p - 1);
  switch (how) {
    case algorithm::linear:
      return cost{chain, chain * of.bytes(), chain};
    case algorithm::chain:
      return cost{chain * of.segments(of.bytes()), chain * of.bytes(), chain};
    case algorithm::recursive_doubling: {
      cost sum{0, 0, number(floor_log2(p))};
      for (int far = 1; far < p; far *= 2) sum.messages += number(p - far);
      sum.bytes = sum.messages * of.bytes();
      return sum;
    }
    default:
      return {};
  }
}

inline std::optional<cost> exscan(algorithm how, const call& of) {
  const int p = of.ranks();
  if (how != algorithm::recursive_doubling || p == 1) return scan(how, of);
  call above_first = of;
  above_first.parts = colls::partition(of.parts.total(), p - 1);
  cost sum = *scan(how, above_first);
  sum.messages += number(p - 1);
  sum.bytes += number(p - 1) * of.bytes();
  ++sum.rounds;
  return sum;
}

}  // namespace detail

inline std::optional<cost> direct_by_cards(collective what, const call& of);

/// all_to_all_v where rank i has `bytes(i, j)` for rank j. bruck tells the lengths, 8 bytes each,
/// ahead of every message.
template <class Bytes>
std::optional<cost> all_to_all_v(algorithm how, int ranks, int radix, const Bytes& bytes) {
  call of{colls::partition(0, ranks)};
  of.radix = radix;
  std::optional<cost> sum = how == algorithm::direct ? direct_by_cards(collective::all_to_all, of)
                                                     : detail::all_to_all(how, of);
  if (!sum) return sum;
  const bool by_hops = how == algorithm::bruck;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from == to) continue;
      const std::uint64_t times = by_hops ? hops((to - from + ranks) % ranks, radix) : 1;
      sum->bytes += times * bytes(from, to);
    }
  }
  if (by_hops) {
    sum->messages *= 2;
    sum->rounds *= 2;
    sum->bytes += 8 * number(ranks) * hops_to_all(ranks, radix);
  }
  return sum;
}

/// Whether direct has one round, in which all data goes to those who need it.
inline bool goes_whole(collective what, const call& of) {
  const std::uint64_t p = number(of.ranks());
  switch (what) {
    case collective::barrier:
      return true;
    case collective::all_gather:
    case collective::all_to_all:
      return of.bytes() <= 32768;
    case collective::gather:
    case collective::scatter:
      return of.bytes() <= 16384 * p;
    case collective::broadcast:
      return of.bytes() * p <= 32768;
    case collective::reduce_scatter:
      return of.bytes() <= 16384;
    default:
      return of.bytes() * p <= 16384;
  }
}
inline std::optional<cost> direct_whole(collective what, const call& of) {
  const std::uint64_t others = number(of.ranks() - 1);
  const std::uint64_t pairs = number(of.ranks()) * others;
  switch (what) {
    case collective::barrier:
      return cost{pairs, 0, 1};
    case collective::all_reduce:
      return cost{pairs, pairs * of.bytes(), 1};
    case collective::reduce_scatter:
    case collective::all_gather:
    case collective::all_to_all:
      return cost{pairs, others * of.bytes(), 1};
    case collective::broadcast:
    case collective::reduce:
      return cost{others, others * of.bytes(), 1};
    case collective::gather:
    case collective::scatter:
      return cost{others, of.bytes() - of.share(of.root), 1};
    case collective::scan:
    case collective::exscan:
      return cost{pairs / 2, pairs / 2 * of.bytes(), 1};
    default:
      return {};
  }
}

/// direct between processes, where nothing is lent: a card of three numbers for each pair of ranks,
/// and then the data.
inline std::optional<cost> direct_by_cards(collective what, const call& of) {
  const int p = of.ranks();
  if (p == 1) return cost{};
  const std::uint64_t others = number(p - 1);
  const std::uint64_t pairs = number(p) * others;
  const std::uint64_t pieces = of.segments(of.parts.longest() * of.element);
  const std::uint64_t elements = std::max<std::uint64_t>(2 * 1024 * 1024 / of.element, 1);
  const std::uint64_t unlent =
      std::max<std::uint64_t>((of.parts.total() + elements - 1) / elements, 1);
  constexpr std::uint64_t card = 3 * 8;
  cost sum{pairs, pairs * card, 1 + of.in_turn(pieces)};
  const auto add = [&](std::uint64_t messages, std::uint64_t bytes) {
    sum.messages += messages;
    sum.bytes += bytes;
  };
  switch (what) {
    case collective::all_reduce:
      // Each piece has cards of its own.
      return cost{3 * pairs * pieces, pairs * card * pieces + 2 * others * of.bytes(),
                  2 * of.in_turn(pieces)};
    case collective::reduce_scatter:
      add(pairs * pieces, others * of.bytes());
      return sum;
    case collective::reduce:
      if (p == 2 ? of.bytes() <= 32768 : others * of.bytes() < 262144) {
        return cost{2 * others, others * (card + of.bytes()), 1};
      }
      if (p == 2) return cost{pairs + 1, pairs * card + of.bytes(), 2};
      add(pairs * pieces, others * of.bytes());
      add(others * pieces, of.bytes() - of.share(of.root));
      return sum;
    case collective::all_gather:
      add(pairs, others * of.bytes());
      sum.rounds = 2;
      return sum;
    case collective::broadcast:
      return cost{2 * others, others * (card + of.bytes()), 1};
    case collective::gather:
    case collective::scatter:
      return cost{3 * others, 2 * others * card + of.bytes() - of.share(of.root), 2};
    case collective::all_to_all:
      return cost{2 * pairs, pairs * card + others * of.bytes(), 2};
    case collective::scan:
    case collective::exscan:
      return cost{pairs + others * unlent, pairs * card + others * of.bytes(), others};
    default:
      return {};
  }
}

/// Nothing where the collective has no such algorithm.
inline std::optional<cost> of(collective what, algorithm how, const call& of) {
  if (how == algorithm::direct && of.lends) {
    const bool whole = of.ranks() > 1 && goes_whole(what, of);
    return whole ? direct_whole(what, of) : direct_by_cards(what, of);
  }
  switch (what) {
    case collective::barrier:
      return detail::barrier(how, of);
    case collective::broadcast:
      return detail::broadcast(how, of);
    case collective::reduce:
      return detail::reduce(how, of);
    case collective::all_reduce:
      return detail::all_reduce(how, of);
    case collective::reduce_scatter:
      return detail::reduce_scatter(how, of);
    case collective::all_gather:
      return detail::all_gather(how, of);
    case collective::gather:
    case collective::scatter:
      return detail::gather(how, of);
    case collective::all_to_all:
      return detail::all_to_all(how, of);
    case collective::scan:
      return detail::scan(how, of);
    case collective::exscan:
      return detail::exscan(how, of);
    default:
      return {};
  }
}

}  // namespace closed_forms
