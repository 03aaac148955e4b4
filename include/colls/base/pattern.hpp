// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pattern: communication patterns. A pattern defines which ranks exchange messages in each round.
// It computes these ranks and needs no table of ranks, so its size does not grow with the number of
// ranks. The value -1 stands for a rank that does not exist, such as the parent of the root of a
// tree.

#include <bit>

namespace colls::pattern {

/// The ranks from `first` to `last` - 1.
struct rank_range {
  int first;
  int last;

  constexpr int size() const { return last - first; }
  friend constexpr bool operator==(const rank_range&, const rank_range&) = default;
};

/// Returns the number of bits that a non-negative number needs. This is floor(log2(number)) + 1, or
/// 0 for the number 0.
constexpr int bit_width(int number) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(number)));
}

/// Returns ceil(log2(size)). This is the number of rounds in which data reaches all `size` ranks if
/// the number of ranks that have the data doubles in each round.
constexpr int doubling_rounds(int size) { return bit_width(size - 1); }

/// Returns `rank + step` modulo `size`. The result is never negative, even if `step` is negative.
constexpr int shifted_rank(int rank, int step, int size) {
  const int shifted = rank - size + step % size;  // subtracts first, so as not to overflow
  return shifted < 0 ? (shifted < -size ? shifted + 2 * size : shifted + size) : shifted;
}

/// The neighbours of a rank on a ring.
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

  constexpr int behind(int step) const { return shifted_rank(rank, -step, size); }
  constexpr int ahead(int step) const { return shifted_rank(rank, step, size); }
};

/// The neighbour exchange algorithm on a ring with an even number of ranks. At the beginning, each
/// rank has one part of the data. The ranks form pairs (0, 1), (2, 3), ... A rank exchanges parts
/// with one of its two neighbours in even rounds and with the other one in odd rounds. In round 0,
/// the two ranks of each pair exchange their parts. In each later round, a rank sends the two parts
/// of one pair and receives the two parts of another pair. In round 1, it sends the parts of its
/// own pair. In every round after that, it sends the parts that it received in the previous round.
/// In rounds 1 and 2, a rank receives the parts of the pairs on both sides of its own pair. In
/// rounds 3 and 4, it receives the parts of the next pairs on both sides, and so on.
struct neighbours {
  int rank;
  int size;

  constexpr neighbours(int my_rank, int ranks) : rank(my_rank), size(ranks) {}

  constexpr int partner(int round) const {
    return shifted_rank(rank, rank % 2 == round % 2 ? 1 : -1, size);
  }
  constexpr rank_range received(int round) const {
    if (round == 0) return {partner(0), partner(0) + 1};
    return pair(round);
  }
  constexpr rank_range sent(int round) const {
    if (round == 0) return {rank, rank + 1};
    return pair(round - 1);
  }

 private:
  // Returns the pair whose parts this rank receives in round `round` and sends in the round after
  // it. For round 0, returns the pair to which this rank belongs.
  constexpr rank_range pair(int round) const {
    const int first = rank % 2 == 0 ? -1 : 1;  // the direction of the pair received in round 1
    const int distance = (round + 1) / 2 * (round % 2 == 1 ? first : -first);
    const int low = shifted_rank(rank - rank % 2, 2 * distance, size);
    return {low, low + 2};
  }
};

/// A hypercube for recursive doubling and halving. The corners are the ranks that take part in the
/// rounds. Their number is the largest power of two that does not exceed the number of ranks. Let
/// m be the number of ranks minus the number of corners. Then the even rank of each of the first m
/// pairs (0, 1), (2, 3), ... is not a corner. Before the first round, the even rank sends its part
/// to the odd rank of the pair. The odd rank then handles the parts of both ranks. After the last
/// round, the even rank receives the result from the odd rank. All other ranks are corners.
///
/// When a round of recursive doubling begins, a corner has combined the parts of consecutive ranks.
/// If the corner and its partner both put the parts of the lower ranks on the left, they combine
/// the parts in rank order.
class hypercube {
 public:
  int rounds;
  int fold_dest;    // the rank to which this rank sends its part, or -1 if this rank is a corner
  int fold_source;  // the rank whose part this rank receives, or -1 if it receives none

  constexpr hypercube(int rank, int size)
      : rounds(bit_width(size) - 1), fold_dest(-1), fold_source(-1), folded_(size - (1 << rounds)) {
    if (rank >= 2 * folded_) {
      corner_ = rank - folded_;
    } else {
      corner_ = rank / 2;
      (rank % 2 == 0 ? fold_dest : fold_source) = rank ^ 1;
    }
  }

  /// Returns the rank with which this corner exchanges data in this round.
  constexpr int partner(int round) const { return rank_of(corner_ ^ (1 << round)); }
  constexpr bool is_partner_lower(int round) const { return (corner_ >> round & 1) != 0; }
  /// Returns a range of ranks. In an algorithm that runs the rounds in ascending order, this corner
  /// has the parts of these ranks when the round begins. In an algorithm that runs the rounds in
  /// descending order, this corner keeps the parts of these ranks in the round and sends its other
  /// parts to its partner.
  constexpr rank_range held(int round) const { return range(corner_, round); }
  /// Returns the range that `held(round)` returns on the rank `partner(round)`.
  constexpr rank_range partner_held(int round) const {
    return range(corner_ ^ (1 << round), round);
  }

  /// Returns the chunks that this corner keeps in this round of recursive halving. The function
  /// `sent` returns the chunks that this corner sends to its partner. At the beginning, each corner
  /// has 2^rounds chunks. In each round, it keeps half of its chunks. The rounds run in ascending
  /// order from 0. The first exchange, which moves the most data, is therefore between neighbours.
  constexpr rank_range kept(int round) const { return half(corner_, round); }
  constexpr rank_range sent(int round) const { return half(corner_ ^ (1 << round), round); }

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

/// The dissemination pattern on a ring, with the radix k. Each round has a step s. The steps are
/// the powers 1, k, k^2, ... that are less than the number of ranks. In the round with step s, a
/// rank sends to the ranks at the distances s, 2s, ..., (k - 1)s in one direction of the ring. It
/// receives from the ranks at these distances in the other direction. Ranks use only those
/// distances that are less than the number of ranks.
///
/// In an all_gather, each round multiplies the number of parts that a rank has by a factor of up to
/// k. In an all_to_all, let d be the distance from the source of a block to its destination. Let c
/// be the digit of d in base k that has the place value s. The round with step s moves the block
/// ahead by c * s ranks.
struct dissemination {
  int rank;
  int size;
  int radix;

  /// Returns the step of the next round, or `size` if there is no further round.
  constexpr int next_step(int step) const {
    return step > (size - 1) / radix ? size : step * radix;
  }
  /// Returns the number of ranks to which each rank sends in the round with the step `step`. Each
  /// rank also receives from this number of ranks.
  constexpr int peers(int step) const {
    const int within = (size - 1) / step;
    return within < radix - 1 ? within : radix - 1;
  }
  constexpr int ahead(int steps) const { return shifted_rank(rank, steps, size); }
  constexpr int behind(int steps) const { return shifted_rank(rank, -steps, size); }
};

/// The pattern of recursive doubling without wrap-around, for prefix sums. When round k begins, a
/// rank has the sum of its own input and the inputs of up to 2^k - 1 ranks directly below it. In
/// round k, the rank sends this sum to `dest` and receives another sum from `source`. It adds the
/// received sum on the left of its own sum.
struct prefix {
  int rank;
  int size;
  int rounds;

  constexpr prefix(int my_rank, int ranks)
      : rank(my_rank), size(ranks), rounds(doubling_rounds(ranks)) {}

  constexpr int dest(int round) const {
    return rank < size - (1 << round) ? rank + (1 << round) : -1;
  }
  constexpr int source(int round) const { return rank >= (1 << round) ? rank - (1 << round) : -1; }
};

}  // namespace colls::pattern
