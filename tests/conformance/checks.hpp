// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// checks: the cases that the conformance tests run, and the comparison with the expected results.

#include "../support/closed_forms.hpp"
#include "harness.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

namespace conformance {

using colls::algorithm;
using colls::any_buffer;
using colls::collective;
using colls::partition;

/// Rank counts of a world: powers of two, and others, for which hypercubes and trees must fold.
/// Programs that repeat the suite (of a second compiler, with sanitizers, for an example of a
/// transport) run some of them.
template <class World>
#ifdef FEW_RANKS
inline constexpr auto sizes = std::to_array({1, 2, 3, 5});
#else
inline constexpr auto sizes = std::to_array({1, 2, 3, 4, 5, 7, 8});
#endif

/// The ranks that pass one buffer as input and as output: all, none, or one. This changes neither
/// messages nor results.
struct placement {
  enum class kind : std::uint8_t { in_place, out_of_place, one_in_place };
  kind where = kind::in_place;
  int only = 0;  // the rank in place, if it is one

  bool is_in_place(int rank) const {
    return where == kind::in_place || (where == kind::one_in_place && rank == only);
  }
  const char* text() const {
    constexpr const char* texts[] = {"in place", "out of place", "one rank in place"};
    return texts[static_cast<std::size_t>(where)];
  }
};
/// Returns one of the placements, or for long vectors those that have ranks in place. Counts that
/// are tested with many shifts get all of them, and each rank is the one in place.
inline std::vector<placement> placements(int p, std::size_t n, std::size_t shift) {
  using kind = placement::kind;
  const auto ranks = static_cast<std::size_t>(p);
  const int only = static_cast<int>((n / 3 + shift / 3) % ranks);
  if (n > 10'000) return {{kind::in_place, only}, {kind::one_in_place, only}};
  return {{static_cast<kind>((n + shift) % 3), only}};
}

/// The cost of an algorithm in closed form.
using closed_form = std::optional<closed_forms::cost> (*)(const closed_forms::call&);

/// The case that is being run, for messages.
struct situation {
  collective operation;
  algorithm id;
  int ranks;
  const char* element;
  std::size_t n;
  pieces cut;
  std::size_t shift;
  int root = -1;
  const char* variant = "";
  closed_form form = nullptr;  // of an algorithm that is not one of colls

  std::string text(int rank) const {
    std::string all = std::string(name(operation)) + " " + name(id) + " of " + std::to_string(n) +
                      " " + element + " on rank " + std::to_string(rank) + " of " +
                      std::to_string(ranks);
    if (root >= 0) all += ", root " + std::to_string(root);
    all += ", segment " + std::to_string(cut.segment) + " x " + std::to_string(cut.lanes);
    all += ", radix " + std::to_string(cut.radix);
    return all + ", shift " + std::to_string(shift) + " " + variant;
  }
};

/// The chunks of all ranks, some of them perhaps empty.
struct layout {
  std::vector<std::size_t> offsets;
  partition parts;
};

/// n elements as evenly as possible; n for each rank; a different number for each, some zero. For
/// long buffers only the first.
inline std::vector<layout> layouts(int ranks, std::size_t n) {
  std::vector<layout> all(3);
  all[0].parts = partition(n, ranks);
  all[1].parts = partition::blocks(n, ranks);
  all[2].offsets.push_back(0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::size_t count = rank % 3 == 1 ? 0 : n * static_cast<std::size_t>((5 * rank + 2) % 7);
    all[2].offsets.push_back(all[2].offsets.back() + count);
  }
  all[2].parts = partition::from_offsets(all[2].offsets.data(), ranks);
  if (n > 10'000) all.resize(1);
  return all;
}

inline std::size_t count(int n) { return static_cast<std::size_t>(n); }
template <class T>
T& of_rank(std::vector<T>& all, int rank) {
  return all[count(rank)];
}
inline any_buffer erased(memory& data, const element_and_op& pair) {
  return {data.data(), data.size() / pair.size, pair.size};
}
inline std::vector<int> roots(int p) {
  if (p == 1) return {0};
  if (p == 2) return {0, 1};
  return {0, p / 2, p - 1};
}
inline std::vector<memory> buffers(int p, std::size_t bytes, std::size_t shift) {
  std::vector<memory> all;
  for (int rank = 0; rank < p; ++rank) all.emplace_back(bytes, (count(rank) + shift) % 8);
  return all;
}
inline std::vector<memory> inputs(const element_and_op& pair, int p, std::size_t n,
                                  std::size_t shift) {
  std::vector<memory> all = buffers(p, n * pair.size, shift);
  for (int rank = 0; rank < p; ++rank) fill(pair, of_rank(all, rank).data(), rank, 0, n);
  return all;
}

template <class Row>
bool legal(const Row& row, const element_and_op& pair, int ranks) {
  return (!row.needs.commutative || pair.op.commutative) &&
         (!row.needs.even_ranks || ranks % 2 == 0);
}
/// Returns whether the bits must be those of the sequential sum.
template <class Row>
bool in_order(const Row& row, const element_and_op& pair) {
  return pair.exact || row.reduction_order == colls::order::rank;
}

inline bool same_bytes(const memory& one, const memory& other) {
  return one.size() == 0 || std::memcmp(one.data(), other.data(), one.size()) == 0;
}

/// Requires equal bytes, or close values for float sums in another order: these differ by rounding
/// alone.
inline void expect_part(const situation& at, const element_and_op& pair, int rank,
                        const std::byte* got, const std::vector<std::byte>& want, bool bits) {
  if (want.empty() || std::memcmp(got, want.data(), want.size()) == 0) return;
  for (std::size_t i = 0; i < want.size(); i += pair.size) {
    if (std::memcmp(got + i, want.data() + i, pair.size) == 0) continue;
    const bool close =
        !bits && std::abs(read<float>(got + i) / read<float>(want.data() + i) - 1) < 1e-6f;
    REQUIRE_MESSAGE(close, at.text(rank) << ": element " << i / pair.size);
  }
}
inline void expect(const situation& at, const element_and_op& pair, int rank, const memory& got,
                   const std::vector<std::byte>& want, bool bits) {
  REQUIRE_MESSAGE(got.size() == want.size(), at.text(rank));
  REQUIRE_MESSAGE(got.guards_are_intact(), at.text(rank));
  expect_part(at, pair, rank, got.data(), want, bits);
}
inline void expect_cost(const situation& at, const traffic& sent,
                        const std::optional<closed_forms::cost>& want) {
  REQUIRE_MESSAGE(want.has_value(), "no closed form of the cost: " << at.text(-1));
  REQUIRE_MESSAGE(sent.messages == want->messages, at.text(-1));
  REQUIRE_MESSAGE(sent.bytes == want->bytes, at.text(-1));
  REQUIRE_MESSAGE(sent.rounds == want->rounds, at.text(-1));
}
inline void expect_cost(const situation& at, const traffic& sent, const partition& parts,
                        const element_and_op& pair, const std::vector<int>& nodes = {}) {
  const closed_forms::call call{
      parts,           pair.size,    std::max(at.root, 0), pair.op.commutative,
      at.cut.segment,  at.cut.lanes, at.cut.radix,         nodes,
      sent.has_windows};
  expect_cost(at, sent,
              at.form != nullptr ? at.form(call) : closed_forms::of(at.operation, at.id, call));
}

/// Calls `test(team, element and op, n, pieces, shift)` for every case.
template <class World, class Test>
void sweep(const Test& test) {
  for (const int p : sizes<World>) {
    team<World> all(p);
    // Primes, one less and one more than the ranks, and chunks around 16 elements: a segment.
    std::vector<std::size_t> counts = {0, 1, 13, 31, 101};
    for (const int n : {p - 1, p, p + 1, 16 * p, 16 * p + 1, 17 * p, 48 * p - 1}) {
      counts.push_back(count(n));
    }
    std::sort(counts.begin(), counts.end());
    counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
    const auto& pairs = elements_and_ops();
    if (p > 8) {
      // Only what depends on the number of ranks: positions and orders.
      std::vector<int> few = {1, p + 1};
      if (p <= 20) few.insert(few.end(), {0, p - 1, 101});
      for (const int n : few) test(all, pairs[2], count(n), pieces{64, 2, 3}, 0);
      test(all, pairs[0], count(17 * p), pieces{}, 1);
      continue;
    }
    for (const element_and_op& pair : pairs) {
      for (const std::size_t n : counts) {
        for (std::size_t shift = 0; shift < (n == 13 ? 8 : 1); ++shift) {
          test(all, pair, n, pieces{}, shift);
          test(all, pair, n, pieces{24, 3, 2}, shift);
        }
        test(all, pair, n, pieces{64, 2, 3}, 0);
      }
    }
    // Above every eager limit, in one piece and in many.
    test(all, pairs[0], 40'009, pieces{}, 1);
    test(all, pairs[2], 40'009, pieces{100'000, 2}, 0);
  }
}

}  // namespace conformance
