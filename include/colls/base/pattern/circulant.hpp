// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The circulant graph: log2 p rounds for any p, with nobody left over.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// The circulant graph of Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
/// (2024). Block i is that of the rank i ahead. Reduce-scatter, rounds counting up: send the blocks
/// `given` to `to`, add what comes from `from` to the blocks `kept`. All-gather undoes the rounds
/// in reverse, from `to` and to `from`.
struct circulant {
  int rank;
  int size;
  int rounds;

  constexpr circulant(int my_rank, int ranks)
      : rank(my_rank), size(ranks), rounds(doubling_rounds(ranks)) {}

  /// Blocks still open before this round: ceil(size / 2^round).
  constexpr int level(int round) const { return ((size - 1) >> round) + 1; }
  constexpr int skip(int round) const { return level(round + 1); }
  constexpr int to(int round) const { return around(rank, skip(round), size); }
  constexpr int from(int round) const { return around(rank, -skip(round), size); }
  constexpr rank_range given(int round) const { return {skip(round), level(round)}; }
  constexpr rank_range kept(int round) const { return {0, level(round) - skip(round)}; }
};

/// Blocks on their way from a root to all ranks over that graph, every rank sending one and
/// receiving one a round: blocks - 1 + ceil(log2 size) rounds, and nobody gets a block twice.
/// Träff, "Optimal broadcast schedules in logarithmic time" (2024).
///
/// In round i the skip is the (i mod L)-th, L = ceil(log2 size), and what a rank receives repeats
/// every L rounds, L blocks further on: its arrivals are L numbers. Blocks below 0 are not there
/// yet, those above the last stand for the last one, of which only the first counts. A rank sends
/// what the other one receives, so it computes the arrivals of its L neighbours: O(L^2) in all.
class circulant_broadcast {
 public:
  int rounds;

  constexpr circulant_broadcast(int rank, int size, int root, int blocks)
      : rounds(size == 1 ? 0 : blocks - 1 + doubling_rounds(size)),
        rank_(rank),
        size_(size),
        root_(root),
        period_(doubling_rounds(size)),
        last_block_(blocks - 1) {
    if (rounds == 0) return;
    early_ = (period_ - last_block_ % period_) % period_;
    const arrivals mine = arrivals_of(rank);
    last_taken_ = mine.last_round;
    for (int k = 0; k < period_; ++k) {
      taken_[k] = mine.block[k];
      const arrivals theirs = arrivals_of(around(rank, skip(k), size));
      given_[k] = theirs.block[k];
      last_given_[k] = theirs.last_round;
    }
  }

  constexpr int to(int round) const { return around(rank_, skip(slot(round)), size_); }
  constexpr int from(int round) const { return around(rank_, -skip(slot(round)), size_); }
  /// The block that goes to `to` in this round; -1: none.
  constexpr int given(int round) const {
    const int k = slot(round);
    return block_in(round, given_[k], last_given_[k]);
  }
  /// The block that comes from `from`; -1: none.
  constexpr int taken(int round) const { return block_in(round, taken_[slot(round)], last_taken_); }

 private:
  static constexpr int most = 31;

  struct arrivals {
    int block[most] = {};
    int last_round = -1;
  };

  constexpr int slot(int round) const { return (round + early_) % period_; }
  constexpr int skip(int k) const { return ((size_ - 1) >> (period_ - k)) + 1; }
  constexpr int later(int round, int block) const {
    return block - early_ + (round + early_) / period_ * period_;
  }
  constexpr int block_in(int round, int first, int last_round) const {
    const int block = later(round, first);
    if (block >= last_block_) return round == last_round ? last_block_ : -1;
    return block < 0 ? -1 : block;
  }

  constexpr arrivals arrivals_of(int rank) const {
    arrivals all;
    const int relative = around(rank, -root_, size_);
    if (relative == 0) {
      for (int k = 0; k < period_; ++k) all.block[k] = -rounds - period_;  // never
      return all;
    }
    search found{*this, relative + size_, 2 * size_, all};
    const int own = found.take_own(relative);
    found.below(0, period_);
    for (int k = 0; k < period_; ++k) {
      all.block[k] = all.block[k] == period_ ? own : all.block[k] - period_;
    }
    int round = 0;
    while (later(round, all.block[slot(round)]) < last_block_) ++round;
    all.last_round = round;
    return all;
  }

  /// Walks sums of skips, ranks that a block passes on its way to the goal, the closest to it
  /// first: the k-th arrival is the first skip of the way to a rank at least the k-th skip before
  /// the goal. No skip is taken twice.
  struct search {
    const circulant_broadcast& graph;
    int goal;
    int before;  // ranks from here on are done
    arrivals& found;
    int k = 0;
    std::uint64_t taken = 0;

    /// The block of which this rank is the first receiver in its part of the graph.
    constexpr int take_own(int relative) {
      int smallest = graph.period_;
      for (int e = graph.period_; e-- > 0 && relative > 0;) {
        if (graph.skip(e) > relative) continue;
        relative -= graph.skip(e);
        smallest = e;
      }
      taken |= 1ULL << smallest;
      return smallest;
    }

    constexpr void below(int at, int longest) {
      for (int e = longest; e >= 0; --e) {
        if ((taken >> e & 1) != 0) continue;
        const int next = at + graph.skip(e);
        if (next > goal - graph.skip(k) || next >= before) continue;
        if (next <= goal - graph.skip(k + 1)) below(next, e);
        if (k == graph.period_ || at > goal - graph.skip(k + 1)) return;
        before = next;
        found.block[k++] = e;
        taken |= 1ULL << e;
        if (k == graph.period_) return;
      }
    }
  };

  int rank_;
  int size_;
  int root_;
  int period_;
  int last_block_;
  int early_ = 0;  // rounds of the first period that would bring nothing
  int last_taken_ = 0;
  int taken_[most] = {};
  int given_[most] = {};
  int last_given_[most] = {};
};

}  // namespace colls::pattern
