// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/partition.hpp>

#include <doctest/doctest.h>

#include <vector>

namespace {

using colls::partition;

// Chunks follow each other without gaps, and so do the segments of each chunk.
constexpr bool tiles(const partition& parts, int segments) {
  std::size_t at = 0;
  std::size_t longest = 0;
  for (int rank = 0; rank < parts.ranks(); ++rank) {
    if (parts.offset(rank) != at) return false;
    for (int k = 0; k < segments; ++k) {
      const partition piece = parts.segment(k, segments);
      if (piece.offset(rank) != at || piece.total() != parts.total()) return false;
      if (piece.count(rank) > piece.longest()) return false;
      at += piece.count(rank);
    }
    if (at != parts.offset(rank) + parts.count(rank)) return false;
    if (parts.count(rank) > longest) longest = parts.count(rank);
  }
  return at == parts.total() && at == parts.offset(parts.ranks()) && parts.longest() == longest;
}

constexpr bool segment_bounds_are_tight(const partition& parts, int segments) {
  for (int k = 0; k < segments; ++k) {
    const partition piece = parts.segment(k, segments);
    std::size_t longest = 0;
    for (int rank = 0; rank < parts.ranks(); ++rank) {
      if (piece.count(rank) > longest) longest = piece.count(rank);
    }
    if (piece.longest() != longest) return false;
  }
  return true;
}

constexpr bool uniform_is_even(std::size_t n, int ranks) {
  const partition parts(n, ranks);
  for (int rank = 1; rank < ranks; ++rank) {
    if (parts.count(rank) > parts.count(rank - 1)) return false;
  }
  return parts.total() == n && parts.longest() - parts.count(ranks - 1) <= 1;
}

constexpr bool all_small_partitions_hold(int max_ranks) {
  for (int ranks = 1; ranks <= max_ranks; ++ranks) {
    for (std::size_t n = 0; n <= 40; ++n) {
      if (!uniform_is_even(n, ranks)) return false;
      for (int segments = 1; segments <= 5; ++segments) {
        const partition parts(n, ranks);
        if (!tiles(parts, segments) || !segment_bounds_are_tight(parts, segments)) return false;
      }
    }
  }
  return true;
}
static_assert(all_small_partitions_hold(5));

static_assert(partition(10, 4).count(0) == 3 && partition(10, 4).count(1) == 3);
static_assert(partition(10, 4).count(2) == 2 && partition(10, 4).offset(2) == 6);
static_assert(partition(3, 8).longest() == 1 && partition(3, 8).offset(7) == 3);
static_assert(partition(0, 3).longest() == 0 && partition(0, 3).offset(2) == 0);
static_assert(partition::blocks(7, 3).offset(2) == 14 && partition::blocks(7, 3).total() == 21);
static_assert(tiles(partition::blocks(7, 3), 4) && tiles(partition::blocks(0, 3), 2));

constexpr std::size_t offsets[] = {0, 5, 5, 16, 17};
constexpr partition uneven = partition::from_offsets(offsets, 4);
static_assert(uneven.total() == 17 && uneven.longest() == 11 && uneven.count(1) == 0);
static_assert(tiles(uneven, 1) && tiles(uneven, 3) && tiles(uneven, 7));
static_assert(segment_bounds_are_tight(uneven, 3) && segment_bounds_are_tight(uneven, 13));
static_assert(uneven.segment(1, 3).offset(2) == 9 && uneven.segment(1, 3).count(2) == 4);

constexpr std::size_t huge = std::size_t{1} << 63;
static_assert(tiles(partition(huge, 7), 3) && tiles(partition(huge - 1, 1 << 10), 2));
static_assert(tiles(partition(huge, 1), 6));

}  // namespace

TEST_CASE("chunks and segments cover every element once, whatever the counts") {
  CHECK(all_small_partitions_hold(33));
  for (const std::size_t n : {97u, 1009u, 65536u, 65537u}) {
    for (const int ranks : {1, 2, 3, 8, 64, 1000}) {
      CAPTURE(n);
      CAPTURE(ranks);
      CHECK(uniform_is_even(n, ranks));
      CHECK(tiles(partition(n, ranks), 6));
      CHECK(segment_bounds_are_tight(partition(n, ranks), 6));
    }
  }
}

TEST_CASE("a partition by offsets reads the caller's array") {
  std::vector<std::size_t> offsets_of_caller{0};
  for (std::size_t i = 0; i < 50; ++i)
    offsets_of_caller.push_back(offsets_of_caller.back() + i * i % 11);
  const partition parts = partition::from_offsets(offsets_of_caller.data(), 50);
  CHECK(parts.total() == offsets_of_caller.back());
  CHECK(parts.longest() == 9);
  for (const int segments : {1, 2, 3, 10, 16}) {
    CHECK(tiles(parts, segments));
    CHECK(segment_bounds_are_tight(parts, segments));
  }
}
