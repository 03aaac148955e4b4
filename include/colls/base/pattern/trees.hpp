// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// trees: tree patterns for data that moves from a root to all ranks, or from all ranks to a root.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// A k-nomial tree, where k is the radix. With radix 2 it is a binomial tree. A relative rank is
/// the distance of a rank from the root, modulo the number of ranks. The root has the relative rank
/// 0. The parent of any other relative rank r is the number that results if the lowest non-zero
/// digit of r in base k is set to 0. The subtree of r therefore consists of the relative ranks r,
/// r + 1, ..., r + subtree - 1. The first of these is r itself. The subtrees of its children 0, 1,
/// ... follow in this order. Each of these subtrees, except perhaps the last, has at least as many
/// ranks as the one before it.
///
/// If data is gathered in the order of relative ranks, the data of each subtree is contiguous. A
/// reduction with the operation (+) computes own (+) child 0 (+) child 1 (+) ... at each rank. If
/// the root is rank 0, the reduction therefore combines the inputs in rank order. A broadcast sends
/// to the last child first.
class knomial_tree {
 public:
  int relative;
  int parent = -1;  // the rank of the parent, or -1 at the root
  int children = 0;
  int subtree;  // the number of ranks in the subtree of this rank, including this rank

  constexpr knomial_tree(int rank, int size, int root, int radix)
      : relative(shifted_rank(rank, -root, size)), size_(size), root_(root), radix_(radix) {
    // The loop sets `unit` to the place value of the lowest non-zero digit of `relative`. The root
    // has no such digit, so the loop ends with `unit >= size`. A child of this rank has the digits
    // of this rank, except that one digit at a place below `unit` is not 0.
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

/// A node of a binary tree of ranks. The members are the ranks of the parent, the left child and
/// the right child. A member is -1 if there is no such node. A reduction with the operation (+)
/// computes left (+) own (+) right at each node. In the trees of `chain_to_root` and `double_tree`,
/// such a reduction therefore combines the inputs in circular rank order.
struct in_order_node {
  int parent;
  int left;
  int right;

  friend constexpr bool operator==(const in_order_node&, const in_order_node&) = default;
};

/// Returns the node of `rank` in a chain that begins at the root. The chain contains the ranks
/// root, root + 1, ..., root + size - 1, modulo `size`. The left child of a rank is the next rank
/// of the chain.
constexpr in_order_node chain_from_root(int rank, int size, int root) {
  const ring circle(rank, size);
  return {rank == root ? -1 : circle.prev, circle.next == root ? -1 : circle.next, -1};
}

/// Returns the node of `rank` in a tree that consists of one or two chains. Each chain ends at the
/// root, and the parent of a rank is the next rank of its chain. If `in_order` is false, there is
/// one chain: root + 1, root + 2, ..., root, modulo `size`. If `in_order` is true, there are two
/// chains: 0, 1, ..., root and size - 1, size - 2, ..., root. With two chains, a reduction combines
/// the inputs in rank order from 0 to size - 1.
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
/// root has children in both trees.
///
/// The rank that is r steps ahead of the root has the label r in the first tree and the label r - 1
/// in the second tree. The positive labels form a subtree, in which the height of a label is the
/// number of its trailing zero bits. Odd labels are therefore leaves. The top of this subtree is
/// the child of label 0. In the second tree, label 0 is the child of label -1, which is the root.
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
