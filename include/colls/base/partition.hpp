// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// partition: the division of n elements between p ranks, which gives the offset and the length of
// the chunk of each rank.

#include <colls/base/compiler.hpp>

#include <cstddef>

namespace colls {

/// A division of elements into one chunk per rank, in rank order and without gaps. All queries take
/// constant time. Only `from_offsets` needs a table. No computation overflows for up to 2^63
/// elements.
class partition {
 public:
  constexpr partition() = default;

  /// Cuts n elements as evenly as possible. The first n % ranks chunks are one element longer than
  /// the others.
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

  /// Returns a partition with chunks of any lengths. Chunk i is the range [offsets[i], offsets[i +
  /// 1]). There must be ranks + 1 offsets, which begin with 0 and do not decrease. The table of
  /// offsets must outlive the partition and its copies.
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

  /// Returns the partition of the k-th segments. Each chunk is cut as evenly as possible into
  /// `segments` segments, which together cover the chunk. The chunks of the result are the k-th of
  /// these segments. The result cannot be cut again.
  COLLS_HOST_DEVICE constexpr partition segment(int k, int segments) const {
    partition piece = *this;
    piece.segment_ = static_cast<std::size_t>(k);
    piece.segments_ = static_cast<std::size_t>(segments);
    return piece;
  }

  COLLS_HOST_DEVICE constexpr int ranks() const { return ranks_; }

  /// Returns the offset of the chunk of rank i. If this is not a partition of segments, i may also
  /// be ranks(), so that the chunks of ranks i to j-1 are the range [offset(i), offset(j)).
  COLLS_HOST_DEVICE constexpr std::size_t offset(int i) const {
    if (segments_ == 1) return chunk_offset(i);
    const std::size_t length = chunk_count(i);
    const std::size_t longer = length % segments_;
    return chunk_offset(i) + segment_ * (length / segments_) +
           (segment_ < longer ? segment_ : longer);
  }

  COLLS_HOST_DEVICE constexpr std::size_t count(int i) const { return piece_of(chunk_count(i)); }

  /// Returns the number of elements of all chunks. For a partition of segments, returns the number
  /// of elements of the partition that was cut.
  COLLS_HOST_DEVICE constexpr std::size_t total() const {
    return offsets_ != nullptr ? offsets_[ranks_]
                               : base_ * static_cast<std::size_t>(ranks_) + longer_;
  }

  /// Returns whether all chunks have equal lengths and no table of offsets defines them.
  COLLS_HOST_DEVICE constexpr bool is_blocks() const { return offsets_ == nullptr && longer_ == 0; }

  /// Returns the largest count of any rank, which is the number of elements that scratch memory for
  /// one chunk must hold.
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
  // Returns the length of the k-th segment of a chunk. A longer chunk never has a shorter k-th
  // segment, so the longest chunk has the longest one.
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
