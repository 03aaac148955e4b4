// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// circulant: communication patterns on the circulant graph. In these patterns, data reaches all p
// ranks in ceil(log2 p) rounds, even if p is not a power of two.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// The circulant graph of Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
/// (2024). Block i of a rank's vector belongs to the rank that is i steps ahead on the ring of
/// ranks.
///
/// A reduce-scatter runs the rounds in ascending order. In each round, a rank sends the blocks
/// `sent` to the rank `dest`. It receives blocks from the rank `source` and adds them to its blocks
/// `kept`. An all-gather runs the rounds in descending order. In each round, a rank sends the
/// blocks `kept` to the rank `source` and receives the blocks `sent` from the rank `dest`.
struct circulant {
  int rank;
  int size;
  int rounds;

  constexpr circulant(int my_rank, int ranks)
      : rank(my_rank), size(ranks), rounds(doubling_rounds(ranks)) {}

  /// Returns ceil(size / 2^round). When this round of a reduce-scatter begins, this rank holds
  /// partial sums for this number of blocks.
  constexpr int level(int round) const { return ((size - 1) >> round) + 1; }
  constexpr int skip(int round) const { return level(round + 1); }
  constexpr int dest(int round) const { return shifted_rank(rank, skip(round), size); }
  constexpr int source(int round) const { return shifted_rank(rank, -skip(round), size); }
  constexpr rank_range sent(int round) const { return {skip(round), level(round)}; }
  constexpr rank_range kept(int round) const { return {0, level(round) - skip(round)}; }
};

/// A broadcast of blocks from a root over the circulant graph, as in Träff, "Optimal broadcast
/// schedules in logarithmic time" (2024). The broadcast takes blocks - 1 + ceil(log2 size) rounds.
/// In each round a rank sends at most one block and receives at most one block. No rank receives
/// the same block twice.
///
/// A skip is a distance between two ranks that exchange blocks. There are L = ceil(log2 size)
/// skips, and the rounds use them cyclically, one skip per round. If a rank receives block b in a
/// round, it receives block b + L in the round that comes L rounds later. Therefore L block
/// numbers, one for each skip, determine all blocks that the rank receives. These numbers are the
/// arrivals of the rank. If the block number for a round is negative, the rank receives no block in
/// this round. If the block number exceeds that of the last block, the rank receives the last
/// block, unless it already has that block.
///
/// A rank computes its own arrivals. It also computes the arrivals of the L ranks to which it
/// sends, because these determine the blocks that it sends. All these computations together take
/// O(L^2) time.
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
  /// Returns the block that this rank sends to `dest` in this round, or -1 if it sends none.
  constexpr int sent(int round) const {
    const int k = slot(round);
    return block_in(round, sent_[k], last_sent_[k]);
  }
  /// Returns the block that this rank receives from `source` in this round, or -1 if it receives
  /// none.
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
      for (int k = 0; k < period_; ++k) all.block[k] = -rounds - period_;  // never sent
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

  /// A search for the data from which the arrivals of one rank are computed. A position is a number
  /// of steps ahead of the root on the ring of ranks. Positions continue after one lap of the ring,
  /// so that position `size` is the root again. The member `goal` is the position of the rank on
  /// the second lap. A path is a sequence of skips that begins at position 0.
  ///
  /// For each k in ascending order, the search finds a path that ends at least `skip(k)` steps
  /// before the goal. It stores the index of the smallest skip of the path in `result.block[k]`.
  /// The paths for greater k end farther from the goal and do not use that skip.
  struct search {
    const circulant_broadcast& graph;
    int goal;
    int limit;  // the search has finished with this position and all later ones
    arrivals& result;
    int k = 0;
    std::uint64_t used = 0;

    /// Returns the index of the smallest skip on a path from the root to the position `relative`,
    /// and marks this skip as used. Each step of this path is the longest possible skip. The
    /// returned index is the only arrival of the rank that is not negative.
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

    /// Searches the paths that continue from `position` with skips whose indices are at most
    /// `longest`.
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
  int skipped_rounds_ = 0;  // the number of rounds left out at the start: no block moves in them
  int last_received_ = 0;
  int received_[max_period] = {};
  int sent_[max_period] = {};
  int last_sent_[max_period] = {};
};

}  // namespace colls::pattern
