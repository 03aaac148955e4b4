// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/pattern.hpp>
#include <colls/base/pattern/circulant.hpp>
#include <colls/base/pattern/trees.hpp>

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

namespace {

namespace pattern = colls::pattern;
using pattern::rank_range;

constexpr int max_ranks = 130;  // at run time; the static_asserts stop at 17

constexpr int modulo(long long value, int size) {
  return static_cast<int>((value % size + size) % size);
}

constexpr bool ring_holds(int size) {
  for (int rank = 0; rank < size; ++rank) {
    const pattern::ring ring(rank, size);
    if (ring.next != modulo(rank + 1, size) || ring.prev != modulo(rank - 1, size)) return false;
    for (int step = -size; step <= 3 * size; ++step) {
      if (ring.behind(step) != modulo(rank - step, size)) return false;
      if (ring.ahead(step) != modulo(rank + step, size)) return false;
    }
  }
  return true;
}

constexpr bool knomial_tree_holds(int size, int radix) {
  for (int root = 0; root < size; ++root) {
    std::array<int, max_ranks> parents{};
    int edges = 0;
    for (int rank = 0; rank < size; ++rank) {
      const pattern::knomial_tree tree(rank, size, root, radix);
      if (tree.rank_of(tree.relative) != rank) return false;
      if ((rank == root) != (tree.parent == -1)) return false;
      int covered = tree.relative + 1;
      for (int k = 0; k < tree.children; ++k) {
        const rank_range range = tree.child_range(k);
        const pattern::knomial_tree child(tree.child(k), size, root, radix);
        if (range.first != covered || range.size() < 1) return false;
        if (child.parent != rank || child.range() != range) return false;
        covered = range.last;
        ++parents[static_cast<std::size_t>(tree.child(k))];
        ++edges;
      }
      if (covered != tree.range().last || tree.subtree != tree.range().size()) return false;
      if (rank == root && tree.range() != rank_range{0, size}) return false;
      if (rank == root && radix == 2 && tree.children != pattern::doubling_rounds(size)) {
        return false;
      }
    }
    if (edges != size - 1) return false;
    for (int rank = 0; rank < size; ++rank) {
      if (parents[static_cast<std::size_t>(rank)] != (rank == root ? 0 : 1)) return false;
    }
  }
  return true;
}

// Each rank sends only parts that it has, partners agree, and at the end every rank has all parts.
constexpr bool neighbours_hold(int size) {
  if (size % 2 != 0) return true;
  for (int rank = 0; rank < size; ++rank) {
    std::array<bool, max_ranks> has{};
    has[static_cast<std::size_t>(rank)] = true;
    for (int round = 0; round < size / 2; ++round) {
      const pattern::neighbours local(rank, size);
      const pattern::neighbours remote(local.partner(round), size);
      if (local.partner(round) == rank || remote.partner(round) != rank) return false;
      if (remote.sent(round) != local.received(round)) return false;
      const auto sent = local.sent(round);
      for (int i = sent.first; i < sent.last; ++i) {
        if (!has[static_cast<std::size_t>(i)]) return false;
      }
      const auto received = local.received(round);
      for (int i = received.first; i < received.last; ++i) {
        if (has[static_cast<std::size_t>(i)]) return false;
        has[static_cast<std::size_t>(i)] = true;
      }
    }
    for (int i = 0; i < size; ++i) {
      if (!has[static_cast<std::size_t>(i)]) return false;
    }
  }
  return true;
}

// The previous rank in a chain is the child of the next.
constexpr bool chains_hold(int size) {
  for (int root = 0; root < size; ++root) {
    for (int rank = 0; rank < size; ++rank) {
      const auto from = pattern::chain_from_root(rank, size, root);
      if (from.right != -1 || (from.parent == -1) != (rank == root)) return false;
      if (from.left != -1 && pattern::chain_from_root(from.left, size, root).parent != rank)
        return false;
      if (from.parent != -1 && pattern::chain_from_root(from.parent, size, root).left != rank)
        return false;
      for (const bool in_order : {false, true}) {
        const auto to = pattern::chain_to_root(rank, size, root, in_order);
        if ((to.parent == -1) != (rank == root)) return false;
        if (in_order && to.left != -1 && to.left != rank - 1) return false;
        if (in_order && to.right != -1 && to.right != rank + 1) return false;
        if (!in_order && to.right != -1) return false;
        int steps = 0;
        for (int at = rank; at != root; ++steps) {
          const int up = pattern::chain_to_root(at, size, root, in_order).parent;
          const auto above = pattern::chain_to_root(up, size, root, in_order);
          if (above.left != at && above.right != at) return false;
          if (steps > size) return false;
          at = up;
        }
      }
    }
  }
  return true;
}

constexpr auto knomial_trees_hold = [](int size) {
  for (const int radix : {2, 3, 4, 9}) {
    if (!knomial_tree_holds(size, radix)) return false;
  }
  return true;
};

// Recursive doubling in rank order: the ranks whose data a corner has grow by the adjacent ranks of
// its partner, until they are all ranks.
constexpr bool hypercube_holds(int size) {
  int corners = 0;
  for (int rank = 0; rank < size; ++rank) {
    const pattern::hypercube cube(rank, size);
    if ((1 << cube.rounds) > size || (2 << cube.rounds) <= size) return false;
    if (cube.fold_dest != -1) {
      if (cube.fold_dest != rank + 1 || cube.fold_source != -1) return false;
      if (pattern::hypercube(rank + 1, size).fold_source != rank) return false;
      continue;
    }
    ++corners;
    rank_range local{rank, rank + 1};
    if (cube.fold_source != -1) {
      if (cube.fold_source != rank - 1) return false;
      if (pattern::hypercube(rank - 1, size).fold_dest != rank) return false;
      local.first = rank - 1;
    }
    for (int round = 0; round < cube.rounds; ++round) {
      const int partner = cube.partner(round);
      const pattern::hypercube other(partner, size);
      if (partner == rank || other.partner(round) != rank || other.fold_dest != -1) return false;
      const rank_range remote = cube.partner_held(round);
      if (cube.held(round) != local || other.held(round) != remote) return false;
      if (cube.is_partner_lower(round) != (partner < rank)) return false;
      if (partner < rank) {
        if (remote.last != local.first) return false;
        local.first = remote.first;
      } else {
        if (local.last != remote.first) return false;
        local.last = remote.last;
      }
    }
    if (local != rank_range{0, size} || cube.held(cube.rounds) != local) return false;
    // The halves of 2^rounds chunks: partners cut the same piece, until one chunk is left.
    rank_range piece{0, 1 << cube.rounds};
    for (int round = 0; round < cube.rounds; ++round) {
      const rank_range kept = cube.kept(round);
      const rank_range sent = cube.sent(round);
      const pattern::hypercube other(cube.partner(round), size);
      if (other.kept(round) != sent || other.sent(round) != kept) return false;
      const bool low = kept.first == piece.first && kept.last == sent.first;
      const bool high = sent.first == piece.first && sent.last == kept.first;
      if (kept.size() != sent.size() || !(low || high)) return false;
      if ((low ? sent : kept).last != piece.last) return false;
      piece = kept;
    }
    if (piece.size() != 1) return false;
  }
  return corners == 1 << pattern::hypercube(0, size).rounds;
}

// After each step a rank has data of `heard` ranks: rank - heard + 1 .. rank.
constexpr bool dissemination_holds(int size) {
  for (const int radix : {2, 3, 4, 7}) {
    long long heard = 1;
    const pattern::dissemination circle{size / 2, size, radix};
    for (int step = 1; step < size; step = circle.next_step(step)) {
      if (heard != step) return false;
      const int peers = circle.peers(step);
      if (peers < 1 || peers >= radix || 1LL * peers * step >= size) return false;
      if (peers < radix - 1 && 1LL * (peers + 1) * step < size) return false;
      for (int j = 1; j <= peers; ++j) {
        const int other = circle.ahead(j * step);
        if (other != modulo(circle.rank + 1LL * j * step, size)) return false;
        if (pattern::dissemination{other, size, radix}.behind(j * step) != circle.rank)
          return false;
      }
      heard *= peers + 1;
    }
    if (heard < size) return false;
  }
  return true;
}

constexpr bool prefix_holds(int size) {
  for (int rank = 0; rank < size; ++rank) {
    const pattern::prefix local(rank, size);
    int first = rank;  // this rank's sum is that of first .. rank
    for (int round = 0; round < local.rounds; ++round) {
      const int from = local.source(round);
      const int to = local.dest(round);
      if (to != -1 && (to <= rank || to >= size)) return false;
      if (to != -1 && pattern::prefix(to, size).source(round) != rank) return false;
      if (from == -1) {
        if (first != 0) return false;
        continue;
      }
      if (from != first - 1 || pattern::prefix(from, size).dest(round) != rank) return false;
      first = from + 1 - (1 << round) < 0 ? 0 : from + 1 - (1 << round);
    }
    if (first != 0) return false;
  }
  return true;
}

// Simulates the reduce-scatter, which is the same for every rank: block i of a rank contains the
// parts of the ranks that `from[i]` marks by their distance behind that rank.
constexpr bool circulant_holds(int size) {
  std::array<long long, max_ranks> parts{};  // how many parts block i contains
  std::array<std::array<bool, max_ranks>, max_ranks> from{};
  for (int i = 0; i < size; ++i) {
    parts[static_cast<std::size_t>(i)] = 1;
    from[static_cast<std::size_t>(i)][0] = true;
  }
  int sent = 0;
  const pattern::circulant graph(0, size);
  if (graph.level(0) != size || graph.level(graph.rounds) != 1) return false;
  for (int round = 0; round < graph.rounds; ++round) {
    const int skip = graph.skip(round);
    const int level = graph.level(round);
    if (skip >= level || level - skip > skip) return false;
    if (graph.sent(round) != rank_range{skip, level}) return false;
    if (graph.kept(round) != rank_range{0, level - skip}) return false;
    for (int rank = 0; rank < size; ++rank) {
      const pattern::circulant local(rank, size);
      if (local.dest(round) != modulo(rank + skip, size)) return false;
      if (pattern::circulant(local.dest(round), size).source(round) != rank) return false;
    }
    for (int i = 0; i < level - skip; ++i) {
      const auto block = static_cast<std::size_t>(i);
      const auto remote = static_cast<std::size_t>(i + skip);
      parts[block] += parts[remote];
      for (int d = 0; d < size; ++d) {
        if (!from[remote][static_cast<std::size_t>(d)]) continue;
        auto& seen = from[block][static_cast<std::size_t>(modulo(d + skip, size))];
        if (seen) return false;  // added twice
        seen = true;
      }
    }
    sent += level - skip;
  }
  return sent == size - 1 && parts[0] == size;
}

// Simulates the broadcast: a receiver expects the block and does not have it, its sender has it,
// and in the end every rank has all blocks. Blocks are bits.
constexpr bool circulant_broadcast_holds(int size, int root, int blocks) {
  const auto index = [](int rank) { return static_cast<std::size_t>(rank); };
  std::array<std::uint64_t, max_ranks> has{};
  has[index(root)] = (1ULL << blocks) - 1;
  const pattern::circulant_broadcast first(0, size, root, blocks);
  if (first.rounds != (size == 1 ? 0 : blocks - 1 + pattern::doubling_rounds(size))) return false;
  for (int round = 0; round < first.rounds; ++round) {
    std::array<std::uint64_t, max_ranks> arrived{};
    for (int rank = 0; rank < size; ++rank) {
      const pattern::circulant_broadcast local(rank, size, root, blocks);
      const int to = local.dest(round);
      const pattern::circulant_broadcast remote(to, size, root, blocks);
      if (remote.source(round) != rank || remote.received(round) != local.sent(round)) return false;
      if (local.sent(round) == -1) continue;
      const std::uint64_t block = 1ULL << local.sent(round);
      if ((has[index(rank)] & block) == 0 || (has[index(to)] & block) != 0) return false;
      arrived[index(to)] = block;
    }
    for (int rank = 0; rank < size; ++rank) has[index(rank)] |= arrived[index(rank)];
  }
  for (int rank = 0; rank < size; ++rank) {
    if (has[index(rank)] != (1ULL << blocks) - 1) return false;
  }
  return true;
}
constexpr auto circulant_broadcast_of_all = [](int size) {
  for (const int blocks : {1, 2, 3, 5, 8}) {
    if (!circulant_broadcast_holds(size, size / 3, blocks)) return false;
  }
  return true;
};

// An in-order walk of the tree from `rank`, root first on the left as it is above a chain.
constexpr bool walk(int rank, int size, int root, bool second, int& next_relative, int depth,
                    int& deepest) {
  if (depth > size) return false;
  if (depth > deepest) deepest = depth;
  const pattern::double_tree trees(rank, size, root);
  const pattern::in_order_node node = second ? trees.second : trees.first;
  for (const int child : {node.left, node.right}) {
    if (child == -1) continue;
    const pattern::double_tree below(child, size, root);
    if ((second ? below.second : below.first).parent != rank) return false;
  }
  if (node.left != -1 && !walk(node.left, size, root, second, next_relative, depth + 1, deepest)) {
    return false;
  }
  if (modulo(rank - root, size) != next_relative) return false;
  ++next_relative;
  return node.right == -1 ||
         walk(node.right, size, root, second, next_relative, depth + 1, deepest);
}

constexpr bool double_tree_holds(int size, int root) {
  for (const bool second : {false, true}) {
    int seen = 0;
    int deepest = 0;
    if (!walk(root, size, root, second, seen, 0, deepest) || seen != size) return false;
    if (deepest > pattern::doubling_rounds(size) + 1) return false;
    const pattern::double_tree top(root, size, root);
    if ((second ? top.second : top.first).parent != -1) return false;
  }
  int busy_in_both = 0;
  for (int rank = 0; rank < size; ++rank) {
    const pattern::double_tree trees(rank, size, root);
    const auto inner = [](const pattern::in_order_node& node) {
      return node.left != -1 || node.right != -1;
    };
    busy_in_both += inner(trees.first) && inner(trees.second);
  }
  return busy_in_both <= 2;
}

template <class Check>
constexpr bool for_sizes(int first, int last, Check check) {
  for (int size = first; size <= last; ++size) {
    if (!check(size)) return false;
  }
  return true;
}

constexpr auto double_tree_of_all_roots = [](int size) {
  for (int root = 0; root < size; ++root) {
    if (!double_tree_holds(size, root)) return false;
  }
  return true;
};

static_assert(for_sizes(1, 17, ring_holds));
static_assert(for_sizes(1, 17, neighbours_hold));
static_assert(for_sizes(1, 13, chains_hold));
static_assert(for_sizes(1, 13, knomial_trees_hold));
static_assert(for_sizes(1, 17, hypercube_holds));
static_assert(for_sizes(1, 17, dissemination_holds));
static_assert(for_sizes(1, 17, prefix_holds));
static_assert(for_sizes(1, 17, circulant_holds));
static_assert(for_sizes(1, 6,
                        circulant_broadcast_of_all));  // clang's limit for constant expressions
static_assert(for_sizes(1, 17, double_tree_of_all_roots));

static_assert(pattern::doubling_rounds(1) == 0 && pattern::doubling_rounds(2) == 1);
static_assert(pattern::doubling_rounds(8) == 3 && pattern::doubling_rounds(9) == 4);

}  // namespace

TEST_CASE("every pattern holds for every number of ranks") {
  for (int size = 7; size <= max_ranks; ++size) CHECK(circulant_broadcast_of_all(size));
  for (int size = 18; size <= max_ranks; ++size) {
    CAPTURE(size);
    CHECK(ring_holds(size));
    CHECK(neighbours_hold(size));
    if (size < 40) CHECK(chains_hold(size));
    CHECK(knomial_trees_hold(size));
    CHECK(hypercube_holds(size));
    CHECK(dissemination_holds(size));
    CHECK(prefix_holds(size));
    CHECK(circulant_holds(size));
    CHECK(double_tree_of_all_roots(size));
  }
}

TEST_CASE("patterns reach a million ranks") {
  for (const int size : {4096, 65537, (1 << 20) - 1, 1 << 20}) {
    CAPTURE(size);
    CHECK(hypercube_holds(size));
    CHECK(dissemination_holds(size));
    CHECK(prefix_holds(size));
    CHECK(double_tree_holds(size, size / 3));
    const pattern::knomial_tree root(size / 3, size, size / 3, 2);
    CHECK(root.children == pattern::doubling_rounds(size));
    CHECK(root.child_range(root.children - 1).last == size);
    const pattern::ring ring(size - 1, size);
    CHECK(ring.behind(size - 1) == 0);
    CHECK(ring.ahead(2 * size) == size - 1);
  }
}
