// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Trees: from or to one root.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// A k-nomial tree around `root`, k being the radix; a binomial one for 2. Relative ranks count
/// from the root, modulo size. The parent of r is r with the lowest digit that is not 0 made 0, so
/// the subtree of r is r, r + 1, ..., r + subtree - 1, and the subtrees of its children 0, 1, ...
/// lie to the right of r in this order, none shorter than the one before but perhaps the last. So a
/// gather into a relative order is contiguous, and own (+) child 0 (+) child 1 (+) ... is in
/// relative rank order, which is rank order if the root is rank 0. A broadcast serves the last
/// child first.
class knomial_tree {
 public:
  int relative;
  int parent = -1;  // at the root
  int children = 0;
  int subtree;  // ranks in it, this one included

  constexpr knomial_tree(int rank, int size, int root, int radix)
      : relative(around(rank, -root, size)), size_(size), root_(root), radix_(radix) {
    // The digits below the lowest one of `relative` that is not 0 are free for children; for the
    // root all are.
    std::int64_t unit = 1;
    while (unit < size && relative / unit % radix == 0) unit *= radix;
    if (relative != 0) {
      const auto step = static_cast<int>(unit);
      parent = rank_of(relative - relative / step % radix * step);
    }
    const int left = size - relative;
    subtree = unit < left ? static_cast<int>(unit) : left;
    for (std::int64_t step = 1; step < subtree; step *= radix) {
      const auto further = static_cast<int>((subtree - 1) / step);
      children += further < radix - 1 ? further : radix - 1;
    }
  }

  constexpr int child(int k) const { return rank_of(child_range(k).first); }
  /// The relative ranks of the k-th child's subtree.
  constexpr rank_range child_range(int k) const {
    std::int64_t step = 1;
    for (; k >= radix_ - 1; k -= radix_ - 1) step *= radix_;
    const auto first = static_cast<int>(relative + (k + 1) * step);
    const int left = size_ - first;
    return {first, first + (step < left ? static_cast<int>(step) : left)};
  }
  constexpr rank_range range() const { return {relative, relative + subtree}; }
  constexpr int rank_of(int relative_rank) const { return around(relative_rank, root_, size_); }

 private:
  int size_;
  int root_;
  int radix_;
};

/// A node of a binary tree whose in-order walk is the order of the relative ranks: left (+) own (+)
/// right keeps that order at each node. -1: none.
struct in_order_node {
  int parent;
  int left;
  int right;

  friend constexpr bool operator==(const in_order_node&, const in_order_node&) = default;
};

/// The chain root, root + 1, ... around; who comes next is the child on the left.
constexpr in_order_node chain_from(int rank, int size, int root) {
  const ring at(rank, size);
  return {rank == root ? -1 : at.prev, at.next == root ? -1 : at.next, -1};
}

/// The chain root + 1, root + 2, ..., root around, or in rank order two of them that meet at the
/// root: 0, 1, ..., root and size - 1, size - 2, ..., root.
constexpr in_order_node chain_to(int rank, int size, int root, bool in_order) {
  const ring at(rank, size);
  if (!in_order) {
    return {rank == root ? -1 : at.next, at.prev == root ? -1 : at.prev, -1};
  }
  return {rank == root  ? -1
          : rank < root ? at.next
                        : at.prev,
          rank > 0 && rank <= root ? at.prev : -1, rank < size - 1 && rank >= root ? at.next : -1};
}

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
