// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// partition: the division of an array into one chunk per rank. A partition gives the offset and the
// length of each rank's chunk.

#include <colls/base/compiler.hpp>

#include <cstddef>

namespace colls {

/// A division of elements into one chunk per rank, in rank order and without gaps. All queries take
/// constant time. Only a partition that is made by `from_offsets` refers to a table of offsets. No
/// computation overflows for up to 2^63 elements.
class partition {
 public:
  constexpr partition() = default;

  /// Divides `n` elements into `ranks` chunks as evenly as possible. The first `n % ranks` chunks
  /// have one element more than the others.
  COLLS_HOST_DEVICE constexpr partition(std::size_t n, int ranks)
      : ranks_(ranks),
        base_(n / static_cast<std::size_t>(ranks)),
        longer_(n % static_cast<std::size_t>(ranks)),
        longest_(base_ + (longer_ != 0 ? 1 : 0)) {}

  /// Returns a partition in which every chunk has `block` elements.
  COLLS_HOST_DEVICE static constexpr partition blocks(std::size_t block, int ranks) {
    partition parts;
    parts.ranks_ = ranks;
    parts.base_ = parts.longest_ = block;
    return parts;
  }

  /// Returns a partition into chunks of any lengths. Chunk i begins at `offsets[i]` and ends before
  /// `offsets[i + 1]`. There must be `ranks + 1` offsets, which begin with 0 and do not decrease.
  /// The table of offsets must outlive the partition and its copies.
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

  /// Divides each chunk into `segments` segments as evenly as possible. Returns a partition that
  /// contains segment `k` of each chunk, where the first segment has the index 0. The caller must
  /// not call `segment` on the returned partition.
  COLLS_HOST_DEVICE constexpr partition segment(int k, int segments) const {
    partition piece = *this;
    piece.segment_ = static_cast<std::size_t>(k);
    piece.segments_ = static_cast<std::size_t>(segments);
    return piece;
  }

  COLLS_HOST_DEVICE constexpr int ranks() const { return ranks_; }

  /// Returns the offset of the chunk of rank `i`. If `segment` did not create this partition, the
  /// chunk ends before `offset(i + 1)`, and `offset(ranks())` is equal to `total()`.
  COLLS_HOST_DEVICE constexpr std::size_t offset(int i) const {
    if (segments_ == 1) return chunk_offset(i);
    const std::size_t length = chunk_count(i);
    const std::size_t longer = length % segments_;
    return chunk_offset(i) + segment_ * (length / segments_) +
           (segment_ < longer ? segment_ : longer);
  }

  COLLS_HOST_DEVICE constexpr std::size_t count(int i) const { return piece_of(chunk_count(i)); }

  /// Returns the sum of the lengths of all chunks. If `segment` created this partition, returns the
  /// total of the partition on which `segment` was called.
  COLLS_HOST_DEVICE constexpr std::size_t total() const {
    return offsets_ != nullptr ? offsets_[ranks_]
                               : base_ * static_cast<std::size_t>(ranks_) + longer_;
  }

  /// Returns whether all chunks have equal lengths. Always returns false for a partition with a
  /// table of offsets.
  COLLS_HOST_DEVICE constexpr bool is_blocks() const { return offsets_ == nullptr && longer_ == 0; }

  /// Returns the number of elements of the longest chunk. Scratch memory for this number of
  /// elements has room for any one chunk.
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
  // If `segment` created this partition, returns the length of the segment of a chunk that has
  // `length` elements. Otherwise returns `length`. A longer chunk never has a shorter segment.
  COLLS_HOST_DEVICE constexpr std::size_t piece_of(std::size_t length) const {
    if (segments_ == 1) return length;
    return length / segments_ + (segment_ < length % segments_ ? 1 : 0);
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
