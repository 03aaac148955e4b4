// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Rank arithmetic: who talks to whom in which round. No pattern keeps a table or any state of size
// p, and "no rank" is -1.

#include <bit>

namespace colls::pattern {

/// The ranks first, first + 1, ..., last - 1.
struct rank_range {
  int first;
  int last;

  constexpr int size() const { return last - first; }
  friend constexpr bool operator==(const rank_range&, const rank_range&) = default;
};

/// Bits that a number which is not negative needs: floor(log2(number)) + 1, or 0 for 0.
constexpr int bit_width(int number) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(number)));
}

/// Rounds in which what every rank knows can double until it is all: ceil(log2(size)).
constexpr int doubling_rounds(int size) { return bit_width(size - 1); }

/// rank + step on a circle of `size` ranks; any step, also a negative one.
constexpr int around(int rank, int step, int size) {
  const int at = rank - size + step % size;  // never overflows
  return at < 0 ? (at < -size ? at + 2 * size : at + size) : at;
}

/// The ranks on a circle.
struct ring {
  int rank;
  int size;
  int next;
  int prev;

  constexpr ring(int my_rank, int ranks)
      : rank(my_rank),
        size(ranks),
        next(my_rank + 1 == ranks ? 0 : my_rank + 1),
        prev(my_rank == 0 ? ranks - 1 : my_rank - 1) {}

  constexpr int back(int step) const { return around(rank, -step, size); }
  constexpr int ahead(int step) const { return around(rank, step, size); }
};

/// A binomial tree around `root`. Relative ranks count from the root, modulo size: the subtree of
/// relative rank r is r, r + 1, ..., r + subtree - 1, and the subtrees of its children 0, 1, ...
/// lie to the right of r in this order, each up to twice as long as the one before. So a gather
/// into a relative order is contiguous, and own (+) child 0 (+) child 1 (+) ... is in relative rank
/// order, which is rank order if the root is rank 0. A broadcast serves the last child first.
class binomial_tree {
 public:
  int relative;
  int parent;    // -1 at the root
  int children;  // how many
  int subtree;   // ranks in it, this one included

  constexpr binomial_tree(int rank, int size, int root)
      : relative(around(rank, -root, size)), size_(size), root_(root) {
    // Bits below the lowest one of `relative` are free for children; for the root all are.
    const int free_bits = std::countr_zero(static_cast<unsigned>(relative));
    const int fitting = bit_width(size - 1 - relative);
    children = free_bits < fitting ? free_bits : fitting;
    subtree = length(relative, free_bits);
    parent = relative == 0 ? -1 : rank_of(relative & (relative - 1));
  }

  constexpr int child(int k) const { return rank_of(relative + (1 << k)); }
  /// The relative ranks of the k-th child's subtree.
  constexpr rank_range child_range(int k) const {
    const int first = relative + (1 << k);
    return {first, first + length(first, k)};
  }
  constexpr rank_range range() const { return {relative, relative + subtree}; }
  constexpr int rank_of(int relative_rank) const { return around(relative_rank, root_, size_); }

 private:
  constexpr int length(int first, int free_bits) const {
    return free_bits < 31 && (1 << free_bits) < size_ - first ? 1 << free_bits : size_ - first;
  }

  int size_;
  int root_;
};

/// A hypercube of the largest power of two of ranks, for recursive doubling and halving. The other
/// ranks fold first: of the neighbours (0, 1), (2, 3), ... the even one gives its part to the odd
/// one and gets the result from it at the end. A corner stands for consecutive ranks, and so do the
/// corners that it has met, hence combining in rank order is: the lower rank's part on the left.
class hypercube {
 public:
  int rounds;
  int gives_to;    // this rank only gives and gets; else -1
  int takes_from;  // the neighbour whose part this rank takes over; else -1

  constexpr hypercube(int rank, int size)
      : rounds(bit_width(size) - 1), gives_to(-1), takes_from(-1), folded_(size - (1 << rounds)) {
    if (rank >= 2 * folded_) {
      corner_ = rank - folded_;
    } else {
      corner_ = rank / 2;
      (rank % 2 == 0 ? gives_to : takes_from) = rank ^ 1;
    }
  }

  /// Whom to exchange with in this round.
  constexpr int partner(int round) const { return rank_of(corner_ ^ (1 << round)); }
  /// The ranks whose parts this corner has before this round, if rounds count up.
  constexpr rank_range held(int round) const { return range(corner_, round); }
  /// The ranks whose parts the partner has then.
  constexpr rank_range partner_held(int round) const {
    return range(corner_ ^ (1 << round), round);
  }

  /// Of 2^rounds chunks that halve in every round, rounds counting up: those that this corner keeps
  /// after this round, and those that it has given to the partner. So the first exchange, of the
  /// longest half, is between neighbours.
  constexpr rank_range kept(int round) const { return half(corner_, round); }
  constexpr rank_range given(int round) const { return half(corner_ ^ (1 << round), round); }

 private:
  constexpr int rank_of(int corner) const {
    return corner < folded_ ? 2 * corner + 1 : corner + folded_;
  }
  constexpr int first_rank(int corner) const {
    return corner < folded_ ? 2 * corner : corner + folded_;
  }
  constexpr rank_range range(int corner, int round) const {
    const int first = (corner >> round) << round;
    return {first_rank(first), first_rank(first + (1 << round))};
  }
  constexpr rank_range half(int corner, int round) const {
    int first = 0;
    for (int i = 0; i <= round; ++i) first |= (corner >> i & 1) << (rounds - 1 - i);
    return {first, first + (1 << (rounds - 1 - round))};
  }

  int folded_;
  int corner_;
};

/// Rounds of steps 1, k, k^2, ... below the size, k being the radix: in each of them a rank meets
/// the ranks that are 1, 2, ..., k-1 steps away on the circle. What every rank knows grows k-fold,
/// and a distance is covered by the digits of its number in that radix.
struct dissemination {
  int rank;
  int size;
  int radix;

  constexpr int after(int step) const { return step > (size - 1) / radix ? size : step * radix; }
  /// How many ranks are met on each side.
  constexpr int peers(int step) const {
    const int within = (size - 1) / step;
    return within < radix - 1 ? within : radix - 1;
  }
  constexpr int ahead(int steps) const { return around(rank, steps, size); }
  constexpr int behind(int steps) const { return around(rank, -steps, size); }
};

/// The same without the wrap, for prefix sums: before round k a rank has the sum of the (up to) 2^k
/// ranks that end with itself; it sends that to `to` and puts what it gets from `from` on its left.
struct prefix {
  int rank;
  int size;
  int rounds;

  constexpr prefix(int my_rank, int ranks)
      : rank(my_rank), size(ranks), rounds(doubling_rounds(ranks)) {}

  constexpr int to(int round) const {
    return rank < size - (1 << round) ? rank + (1 << round) : -1;
  }
  constexpr int from(int round) const { return rank >= (1 << round) ? rank - (1 << round) : -1; }
};

/// A node of a binary tree whose in-order walk is the order of the relative ranks: left (+) own (+)
/// right keeps that order at each node.
struct in_order_node {
  int parent;
  int left;
  int right;
};

/// Two binary trees around one root, after Sanders, Speck, Träff, "Two-tree algorithms for full
/// bandwidth broadcast, reduction and scan" (2009): each carries half of the data, and apart from
/// the root and one rank below it nobody has children in both. Relative rank r has the label r in
/// the first tree, r - 1 in the second. Labels 1, 2, ... form the tree in which a label's trailing
/// zeros are its height, so odd ones are leaves; labels 0 and -1 are a chain above its top.
struct double_tree {
  in_order_node first;
  in_order_node second;

  constexpr double_tree(int rank, int size, int root)
      : first(node(rank, size, root, 0)), second(node(rank, size, root, 1)) {}

 private:
  static constexpr in_order_node node(int rank, int size, int root, int shift) {
    const int label = around(rank, -root, size) - shift;
    const int last = size - 1 - shift;
    const auto rank_of = [&](int other) { return around(other + shift, root, size); };
    const auto highest_bit = [](int bits) { return 1 << (bit_width(bits) - 1); };
    in_order_node at{-1, -1, -1};
    if (label > 0) {
      const int step = label & -label;  // 2 to the height; labels label-step < x < label+step below
      const int up = (label ^ step) | (2 * step);
      at.parent = rank_of(up <= last ? up : label - step);
      if (step > 1) at.left = rank_of(label - step / 2);
      const int right = last - label < step - 1 ? last - label : step - 1;
      if (right > 0) at.right = rank_of(label + highest_bit(right));
    } else {
      if (label > -shift) at.parent = rank_of(label - 1);
      if (label < 0 && last >= 0) at.right = rank_of(0);
      if (label == 0 && last > 0) at.right = rank_of(highest_bit(last));
    }
    return at;
  }
};

}  // namespace colls::pattern
