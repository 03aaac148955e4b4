// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// circulant: communication patterns on the circulant graph. Data needs ceil(log2 p) rounds to reach
// all p ranks, even if p is not a power of two.

#include <colls/base/pattern.hpp>

#include <cstdint>

namespace colls::pattern {

/// The circulant graph of Träff, "Optimal, non-pipelined reduce-scatter and allreduce algorithms"
/// (2024). Block i of a rank's vector belongs to the rank that is i steps ahead in the circle of
/// ranks. A reduce-scatter runs the rounds in ascending order: in each round a rank sends the
/// blocks `sent` to `dest`, receives blocks from `source` and adds them to the blocks `kept`. An
/// all-gather runs the rounds in descending order: in each round a rank receives from `dest` and
/// sends to `source`.
struct circulant {
  int rank;
  int size;
  int rounds;

  constexpr circulant(int my_rank, int ranks)
      : rank(my_rank), size(ranks), rounds(doubling_rounds(ranks)) {}

  /// Returns ceil(size / 2^round). This is the number of blocks for which this rank holds partial
  /// sums before this round of a reduce-scatter.
  constexpr int level(int round) const { return ((size - 1) >> round) + 1; }
  constexpr int skip(int round) const { return level(round + 1); }
  constexpr int dest(int round) const { return shifted_rank(rank, skip(round), size); }
  constexpr int source(int round) const { return shifted_rank(rank, -skip(round), size); }
  constexpr rank_range sent(int round) const { return {skip(round), level(round)}; }
  constexpr rank_range kept(int round) const { return {0, level(round) - skip(round)}; }
};

/// A broadcast of blocks from a root over the circulant graph, as in Träff, "Optimal broadcast
/// schedules in logarithmic time" (2024). The broadcast takes blocks - 1 + ceil(log2 size) rounds.
/// In each round a rank sends at most one block and receives at most one block. No rank receives a
/// block twice.
///
/// A skip is a distance between two ranks that exchange blocks. The rounds use L = ceil(log2 size)
/// skips in turn. If a rank receives block b in a round, the rank receives block b + L after L more
/// rounds. Therefore L numbers, the arrivals, describe all blocks that the rank receives. A
/// negative number means that no block is sent. A number greater than that of the last block stands
/// for the last block, unless the rank has already received the last block. To find out which
/// blocks to send, a rank also computes the arrivals of the L ranks to which it sends. This takes
/// O(L^2) time in all.
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

  /// A search for paths from the root toward the rank `goal`. A path is a sequence of skips, whose
  /// partial sums are the ranks through which a block passes. The search visits the ranks that are
  /// closest to the goal first. The k-th path must end at a rank that lies at least the k-th skip
  /// before the goal. The index of the smallest skip of this path is the k-th arrival. Later paths
  /// do not use that skip.
  struct search {
    const circulant_broadcast& graph;
    int goal;
    int limit;  // the search has finished with this rank and all later ranks
    arrivals& result;
    int k = 0;
    std::uint64_t used = 0;

    /// Returns the only arrival of the rank `relative` that is not negative. It is the index of the
    /// smallest skip on the path from the root to this rank that takes the longest possible skips
    /// first. Marks this skip as used.
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

    /// Visits the ranks that can be reached from `position` by skips with indices up to `longest`.
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
