// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The circulant graph: ceil(log2 p) rounds for any number of ranks, without a folding step.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// The circulant graph of Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
/// (2024). Block i belongs to the rank i steps ahead. Reduce-scatter, rounds counting up: send the
/// blocks `sent` to `dest`, and add the blocks received from `source` to the blocks `kept`.
/// All-gather reverses the rounds, receiving from `dest` and sending to `source`.
struct circulant {
  int rank;
  int size;
  int rounds;

  constexpr circulant(int my_rank, int ranks)
      : rank(my_rank), size(ranks), rounds(doubling_rounds(ranks)) {}

  /// Returns the number of unfinished blocks before this round: ceil(size / 2^round).
  constexpr int level(int round) const { return ((size - 1) >> round) + 1; }
  constexpr int skip(int round) const { return level(round + 1); }
  constexpr int dest(int round) const { return shifted_rank(rank, skip(round), size); }
  constexpr int source(int round) const { return shifted_rank(rank, -skip(round), size); }
  constexpr rank_range sent(int round) const { return {skip(round), level(round)}; }
  constexpr rank_range kept(int round) const { return {0, level(round) - skip(round)}; }
};

/// Broadcast of blocks from a root over the circulant graph. Each rank sends one block and receives
/// one block per round, in blocks - 1 + ceil(log2 size) rounds, and no rank receives a block twice.
/// Träff, "Optimal broadcast schedules in logarithmic time" (2024).
///
/// Round i uses the (i mod L)-th skip, where L = ceil(log2 size). The schedule of received blocks
/// repeats every L rounds with block numbers L higher, so L numbers (the arrivals) describe it. A
/// block below 0 is not sent. A block above the last stands for the last block, of which only the
/// first arrival counts. A rank sends the block that the destination receives, so it computes the
/// arrivals of its L neighbours: O(L^2) in all.
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
    skipped_rounds_ = (period_ - last_block_ % period_) % period_;
    const arrivals local = arrivals_of(rank);
    last_received_ = local.last_round;
    for (int k = 0; k < period_; ++k) {
      received_[k] = local.block[k];
      const arrivals remote = arrivals_of(shifted_rank(rank, skip(k), size));
      sent_[k] = remote.block[k];
      last_sent_[k] = remote.last_round;
    }
  }

  constexpr int dest(int round) const { return shifted_rank(rank_, skip(slot(round)), size_); }
  constexpr int source(int round) const { return shifted_rank(rank_, -skip(slot(round)), size_); }
  /// Returns the block sent to `dest` in this round; -1: none.
  constexpr int sent(int round) const {
    const int k = slot(round);
    return block_in(round, sent_[k], last_sent_[k]);
  }
  /// Returns the block received from `source` in this round; -1: none.
  constexpr int received(int round) const {
    return block_in(round, received_[slot(round)], last_received_);
  }

 private:
  static constexpr int max_period = 31;

  struct arrivals {
    int block[max_period] = {};
    int last_round = -1;
  };

  constexpr int slot(int round) const { return (round + skipped_rounds_) % period_; }
  constexpr int skip(int k) const { return ((size_ - 1) >> (period_ - k)) + 1; }
  constexpr int later(int round, int block) const {
    return block - skipped_rounds_ + (round + skipped_rounds_) / period_ * period_;
  }
  constexpr int block_in(int round, int first, int last_round) const {
    const int block = later(round, first);
    if (block >= last_block_) return round == last_round ? last_block_ : -1;
    return block < 0 ? -1 : block;
  }

  constexpr arrivals arrivals_of(int rank) const {
    arrivals all;
    const int relative = shifted_rank(rank, -root_, size_);
    if (relative == 0) {
      for (int k = 0; k < period_; ++k) all.block[k] = -rounds - period_;  // never
      return all;
    }
    search paths{*this, relative + size_, 2 * size_, all};
    const int own = paths.find_own(relative);
    paths.search_from(0, period_);
    for (int k = 0; k < period_; ++k) {
      all.block[k] = all.block[k] == period_ ? own : all.block[k] - period_;
    }
    int round = 0;
    while (later(round, all.block[slot(round)]) < last_block_) ++round;
    all.last_round = round;
    return all;
  }

  /// Searches paths from the root to the goal. A path is a sum of skips, whose partial sums are the
  /// ranks that a block passes; ranks closest to the goal come first. The k-th arrival is the first
  /// skip of the path to a rank at least the k-th skip before the goal. No skip is used twice.
  struct search {
    const circulant_broadcast& graph;
    int goal;
    int limit;  // ranks from here on are finished
    arrivals& result;
    int k = 0;
    std::uint64_t used = 0;

    /// Finds the block of which this rank is the first receiver in its part of the graph.
    constexpr int find_own(int relative) {
      int smallest = graph.period_;
      for (int e = graph.period_; e-- > 0 && relative > 0;) {
        if (graph.skip(e) > relative) continue;
        relative -= graph.skip(e);
        smallest = e;
      }
      used |= 1ULL << smallest;
      return smallest;
    }

    /// Examines the ranks that can be reached from `position` with skips up to `longest`.
    constexpr void search_from(int position, int longest) {
      for (int e = longest; e >= 0; --e) {
        if ((used >> e & 1) != 0) continue;
        const int next = position + graph.skip(e);
        if (next > goal - graph.skip(k) || next >= limit) continue;
        if (next <= goal - graph.skip(k + 1)) search_from(next, e);
        if (k == graph.period_ || position > goal - graph.skip(k + 1)) return;
        limit = next;
        result.block[k++] = e;
        used |= 1ULL << e;
        if (k == graph.period_) return;
      }
    }
  };

  int rank_;
  int size_;
  int root_;
  int period_;
  int last_block_;
  int skipped_rounds_ = 0;  // rounds of the first period in which no block would move
  int last_received_ = 0;
  int received_[max_period] = {};
  int sent_[max_period] = {};
  int last_sent_[max_period] = {};
};

}  // namespace colls::pattern
