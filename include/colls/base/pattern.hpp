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

/// Neighbours on a circle of an even number of ranks, by turns: the pair (0, 1), (2, 3), ... that a
/// rank is in, the other neighbour, and so on. After the first round a rank has its pair's parts,
/// and then passes on the two that it got in the round before: pairs come alternately from both
/// sides, each one further away.
struct neighbours {
  int rank;
  int size;

  constexpr neighbours(int my_rank, int ranks) : rank(my_rank), size(ranks) {}

  constexpr int partner(int round) const {
    return around(rank, rank % 2 == round % 2 ? 1 : -1, size);
  }
  constexpr rank_range taken(int round) const {
    if (round == 0) return {partner(0), partner(0) + 1};
    return pair(round);
  }
  constexpr rank_range given(int round) const {
    if (round == 0) return {rank, rank + 1};
    return pair(round - 1);
  }

 private:
  // The two ranks whose parts have come in this round, or after round 0 are there.
  constexpr rank_range pair(int round) const {
    const int first = rank % 2 == 0 ? -1 : 1;  // where the pair of round 1 lies
    const int away = (round + 1) / 2 * (round % 2 == 1 ? first : -first);
    const int low = around(rank - rank % 2, 2 * away, size);
    return {low, low + 2};
  }
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
  constexpr bool is_partner_lower(int round) const { return (corner_ >> round & 1) != 0; }
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

}  // namespace colls::pattern
