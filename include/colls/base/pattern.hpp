// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pattern: communication patterns. A pattern defines which ranks exchange messages in each round.
// It computes these ranks by arithmetic, in memory that does not grow with the number of ranks. The
// rank -1 means that there is no such rank.

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

/// The neighbour exchange algorithm on a ring with an even number of ranks, each of which begins
/// with its own part of the data. The ranks form pairs (0, 1), (2, 3), ... A rank exchanges parts
/// with its two neighbours alternately. In round 0 it exchanges its own part for the part of the
/// other rank of its pair. In each later round it sends the two parts of one pair and receives the
/// two parts of another. In round 1 it sends the parts of its own pair, and in later rounds those
/// that it received in the previous round. The received pairs come alternately from both sides of
/// the rank, and from increasing distances.
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
  // Returns the two ranks whose parts this rank receives in round `round` and sends in the next
  // round. For round 0, returns the pair to which this rank belongs.
  constexpr rank_range pair(int round) const {
    const int first = rank % 2 == 0 ? -1 : 1;  // the direction of the pair received in round 1
    const int distance = (round + 1) / 2 * (round % 2 == 1 ? first : -first);
    const int low = shifted_rank(rank - rank % 2, 2 * distance, size);
    return {low, low + 2};
  }
};

/// A hypercube for recursive doubling and halving. The number of corners is the largest power of
/// two that does not exceed the number of ranks. If m ranks are left over, the even rank of each of
/// the first m pairs (0, 1), (2, 3), ... folds: it sends its part to the odd rank and receives the
/// result from the odd rank at the end. All other ranks are corners. A corner represents itself and
/// the rank that folds into it, if there is one. Before each round of recursive doubling, a corner
/// has combined the parts of consecutive ranks. It therefore combines in rank order if it puts the
/// part of the lower ranks on the left.
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
  /// Returns a range of ranks. If the rounds run in ascending order, this corner has the parts of
  /// these ranks before round `round`. If the rounds run in descending order, this corner keeps the
  /// parts of these ranks in round `round`.
  constexpr rank_range held(int round) const { return range(corner_, round); }
  /// Returns the range that `held(round)` returns on the rank `partner(round)`.
  constexpr rank_range partner_held(int round) const {
    return range(corner_ ^ (1 << round), round);
  }

  /// Returns the chunks that this corner keeps in this round of recursive halving. `sent` returns
  /// the chunks that this corner sends to its partner. There are 2^rounds chunks at the beginning,
  /// and a corner keeps half of its chunks in each round. The rounds run in ascending order from 0,
  /// so that the first exchange, which moves the most data, is between neighbours.
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

/// Dissemination in rounds with the steps 1, k, k^2, ... that are less than the number of ranks,
/// where k is the radix. In each round a rank exchanges messages with the ranks that are 1, 2, ...,
/// k - 1 times the step away on the ring. The number of parts that a rank has grows by a factor of
/// up to k in each round. In an all_to_all, the round with the step k^i moves a block for the rank
/// at distance d by c * k^i ranks, where c is the digit of d at k^i in base k.
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

/// Recursive doubling without wrap-around, for prefix sums. Before round k, a rank has the sum of
/// its own input and of the inputs of up to 2^k - 1 ranks directly below it. In round k it sends
/// this sum to `dest`. It receives a sum from `source`, which it adds on the left.
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
