// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// trees: tree patterns for data that moves from a root to all ranks, or from all ranks to a root.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// A k-nomial tree, where k is the radix. With radix 2 it is a binomial tree. A relative rank is
/// the distance of a rank from the root, modulo the number of ranks. The parent of the relative
/// rank r is r with its lowest non-zero digit in base k set to 0. The subtree of r therefore
/// consists of the relative ranks r, r + 1, ..., r + subtree - 1. In this list, r is followed by
/// the subtrees of its children 0, 1, ... in this order. Only the last of these subtrees can have
/// fewer ranks than the one before.
///
/// Data that is gathered in the order of relative ranks is contiguous in each subtree. A reduction
/// with the operation (+) computes own (+) child 0 (+) child 1 (+) ..., which is rank order if the
/// root is rank 0. A broadcast sends to the last child first.
class knomial_tree {
 public:
  int relative;
  int parent = -1;  // the rank of the parent, or -1 at the root
  int children = 0;
  int subtree;  // the number of ranks in the subtree of this rank, including this rank

  constexpr knomial_tree(int rank, int size, int root, int radix)
      : relative(shifted_rank(rank, -root, size)), size_(size), root_(root), radix_(radix) {
    // A child differs from its parent in one digit, which lies below the lowest non-zero digit of
    // the parent. A child of the root can differ from the root in any one digit.
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
  /// Returns the relative ranks of the subtree of child `k`.
  constexpr rank_range child_range(int k) const {
    std::int64_t step = 1;
    for (; k >= radix_ - 1; k -= radix_ - 1) step *= radix_;
    const auto first = static_cast<int>(relative + (k + 1) * step);
    const int left = size_ - first;
    return {first, first + (step < left ? static_cast<int>(step) : left)};
  }
  constexpr rank_range range() const { return {relative, relative + subtree}; }
  constexpr int rank_of(int relative_rank) const {
    return shifted_rank(relative_rank, root_, size_);
  }

 private:
  int size_;
  int root_;
  int radix_;
};

/// A node of a binary tree whose in-order traversal visits the relative ranks in ascending order.
/// At each node a reduction with the operation (+) therefore computes left (+) own (+) right. The
/// value -1 means that there is no such rank.
struct in_order_node {
  int parent;
  int left;
  int right;

  friend constexpr bool operator==(const in_order_node&, const in_order_node&) = default;
};

/// Returns the node of `rank` in the chain root, root + 1, ..., modulo `size`. The left child of a
/// rank is the next rank of the chain.
constexpr in_order_node chain_from_root(int rank, int size, int root) {
  const ring circle(rank, size);
  return {rank == root ? -1 : circle.prev, circle.next == root ? -1 : circle.next, -1};
}

/// Returns the node of `rank` in the chain root + 1, root + 2, ..., root, modulo `size`. If
/// `in_order` is true, there are two chains instead, 0, 1, ..., root and size - 1, size - 2, ...,
/// root, which meet at the root.
constexpr in_order_node chain_to_root(int rank, int size, int root, bool in_order) {
  const ring circle(rank, size);
  if (!in_order) {
    return {rank == root ? -1 : circle.next, circle.prev == root ? -1 : circle.prev, -1};
  }
  return {rank == root  ? -1
          : rank < root ? circle.next
                        : circle.prev,
          rank > 0 && rank <= root ? circle.prev : -1,
          rank < size - 1 && rank >= root ? circle.next : -1};
}

/// Two binary trees with the same root, as in Sanders, Speck, Träff, "Two-tree algorithms for full
/// bandwidth broadcast, reduction and scan" (2009). Each tree carries half of the data. Only the
/// root has children in both trees. The relative rank r has the label r in the first tree and the
/// label r - 1 in the second. The labels 1, 2, ... form a tree in which the height of a label is
/// the number of its trailing zero bits, so that odd labels are leaves. The labels 0 and -1 form a
/// chain above the top of this tree.
struct double_tree {
  in_order_node first;
  in_order_node second;

  constexpr double_tree(int rank, int size, int root)
      : first(node(rank, size, root, 0)), second(node(rank, size, root, 1)) {}

 private:
  static constexpr in_order_node node(int rank, int size, int root, int shift) {
    const int label = shifted_rank(rank, -root, size) - shift;
    const int last = size - 1 - shift;
    const auto rank_of = [&](int other) { return shifted_rank(other + shift, root, size); };
    const auto highest_bit = [](int bits) { return 1 << (bit_width(bits) - 1); };
    in_order_node result{-1, -1, -1};
    if (label > 0) {
      // `step` is 2 to the power of the height of the label. The subtree of the label consists of
      // the labels that are greater than label - step and less than label + step.
      const int step = label & -label;
      const int up = (label ^ step) | (2 * step);
      result.parent = rank_of(up <= last ? up : label - step);
      if (step > 1) result.left = rank_of(label - step / 2);
      const int right = last - label < step - 1 ? last - label : step - 1;
      if (right > 0) result.right = rank_of(label + highest_bit(right));
    } else {
      if (label > -shift) result.parent = rank_of(label - 1);
      if (label < 0 && last >= 0) result.right = rank_of(0);
      if (label == 0 && last > 0) result.right = rank_of(highest_bit(last));
    }
    return result;
  }
};

}  // namespace colls::pattern
