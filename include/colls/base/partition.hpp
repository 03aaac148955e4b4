// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// n elements over p ranks: where the chunk of each rank begins and how long it is.

#include <colls/base/compiler.hpp>

#include <cstddef>

namespace colls {

/// Cuts elements into one chunk per rank, in rank order without gaps. Every question is answered in
/// O(1) without a table. Counts up to 2^63 elements do not overflow.
class partition {
 public:
  constexpr partition() = default;

  /// n elements as evenly as possible: the first n % ranks chunks are one longer.
  COLLS_HOST_DEVICE constexpr partition(std::size_t n, int ranks)
      : ranks_(ranks),
        base_(n / static_cast<std::size_t>(ranks)),
        longer_(n % static_cast<std::size_t>(ranks)),
        longest_(base_ + (longer_ != 0 ? 1 : 0)) {}

  /// One block of equal length per rank.
  COLLS_HOST_DEVICE static constexpr partition blocks(std::size_t block, int ranks) {
    partition parts;
    parts.ranks_ = ranks;
    parts.base_ = parts.longest_ = block;
    return parts;
  }

  /// Chunks of any lengths: chunk i is [offsets[i], offsets[i + 1]). The ranks + 1 offsets begin
  /// with 0, never fall, and stay alive as long as the partition and its copies.
  static constexpr partition from_offsets(const std::size_t* offsets, int ranks) {
    partition parts;
    parts.ranks_ = ranks;
    parts.offsets_ = offsets;
    for (int i = 0; i < ranks; ++i) {
      const std::size_t count = offsets[i + 1] - offsets[i];
      if (count > parts.longest_) parts.longest_ = count;
    }
    return parts;
  }

  /// The same chunks, each restricted to the k-th of `segments` pieces that are cut as evenly as
  /// possible. Only a whole partition can be cut. What all segments of a chunk cover is the chunk.
  COLLS_HOST_DEVICE constexpr partition segment(int k, int segments) const {
    partition piece = *this;
    piece.segment_ = static_cast<std::size_t>(k);
    piece.segments_ = static_cast<std::size_t>(segments);
    return piece;
  }

  COLLS_HOST_DEVICE constexpr int ranks() const { return ranks_; }

  /// Where the chunk of rank i begins (its segment, if this is one). For a whole partition
  /// i = ranks() is good too: the chunks of ranks i to j-1 are [offset(i), offset(j)).
  COLLS_HOST_DEVICE constexpr std::size_t offset(int i) const {
    if (segments_ == 1) return chunk_offset(i);
    const std::size_t whole = chunk_count(i);
    const std::size_t longer = whole % segments_;
    return chunk_offset(i) + segment_ * (whole / segments_) +
           (segment_ < longer ? segment_ : longer);
  }

  COLLS_HOST_DEVICE constexpr std::size_t count(int i) const { return piece_of(chunk_count(i)); }

  /// The elements of all chunks; those of the whole also for a segment.
  COLLS_HOST_DEVICE constexpr std::size_t total() const {
    return offsets_ != nullptr ? offsets_[ranks_]
                               : base_ * static_cast<std::size_t>(ranks_) + longer_;
  }

  /// Whether all chunks are of one length, by the way they were made: no rank has a table.
  COLLS_HOST_DEVICE constexpr bool is_blocks() const { return offsets_ == nullptr && longer_ == 0; }

  /// The largest count of any rank: what scratch for one chunk has to hold.
  COLLS_HOST_DEVICE constexpr std::size_t longest() const { return piece_of(longest_); }

 private:
  COLLS_HOST_DEVICE constexpr std::size_t chunk_offset(int i) const {
    if (offsets_ != nullptr) return offsets_[i];
    const auto chunk = static_cast<std::size_t>(i);
    return chunk * base_ + (chunk < longer_ ? chunk : longer_);
  }
  COLLS_HOST_DEVICE constexpr std::size_t chunk_count(int i) const {
    if (offsets_ != nullptr) return offsets_[i + 1] - offsets_[i];
    return base_ + (static_cast<std::size_t>(i) < longer_ ? 1 : 0);
  }
  // Never falls when `whole` grows, so the longest chunk has the longest k-th piece.
  COLLS_HOST_DEVICE constexpr std::size_t piece_of(std::size_t whole) const {
    if (segments_ == 1) return whole;
    return whole / segments_ + (segment_ < whole % segments_ ? 1 : 0);
  }

  int ranks_ = 0;
  std::size_t base_ = 0;
  std::size_t longer_ = 0;
  std::size_t longest_ = 0;
  const std::size_t* offsets_ = nullptr;
  std::size_t segment_ = 0;
  std::size_t segments_ = 1;
};

}  // namespace colls
