// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// rotated_partition: the chunks of all ranks in a circular order that begins at a given rank.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls {

/// A partition with the chunks of all ranks in circular order, beginning with the chunk of the rank
/// `first`. Block i is the chunk of the rank `first` + i, modulo the number of ranks.
class rotated_partition {
 public:
  rotated_partition(partition parts, int first)
      : parts_(parts), first_(first), start_(parts.offset(first)), wrap_(parts.total() - start_) {}

  /// Returns the number of elements in the blocks before block `i`. `i` may be the number of
  /// blocks.
  std::size_t offset(int i) const {
    const int rank = first_ + i;
    return rank <= parts_.ranks() ? parts_.offset(rank) - start_
                                  : wrap_ + parts_.offset(rank - parts_.ranks());
  }
  std::size_t count(int i) const { return count({i, i + 1}); }
  std::size_t count(pattern::rank_range blocks) const {
    return offset(blocks.last) - offset(blocks.first);
  }

  /// The place of consecutive blocks of this partition in a buffer. The buffer holds the blocks in
  /// rank order, and not in the rotated order of this partition. The blocks can therefore wrap
  /// around the end of the buffer. `head` is then the piece at the end of the buffer, and `tail` is
  /// the piece at its beginning. Otherwise `head` contains all blocks and `tail` is empty.
  template <buffer Data>
  struct wrapped_range {
    Data head;
    Data tail;
    bool is_contiguous() const { return tail.size() == 0; }
  };
  template <buffer Data>
  wrapped_range<Data> range(const Data& all, pattern::rank_range blocks) const {
    const std::size_t start = offset(blocks.first);
    const std::size_t end = offset(blocks.last);
    if (start >= wrap_) return {all.subspan(start - wrap_, end - start), all.subspan(0, 0)};
    const std::size_t head_end = end < wrap_ ? end : wrap_;
    return {all.subspan(start_ + start, head_end - start), all.subspan(0, end - head_end)};
  }

  /// Copies all chunks from `in_rank_order`, which holds them in rank order, to `dest`. Stores them
  /// there in the circular order of this partition.
  template <channel Channel, buffer Data>
  void rotate(const Channel& net, const Data& dest, const Data& in_rank_order) const {
    net.copy(bytes(dest.subspan(0, wrap_)), bytes(in_rank_order.subspan(start_, wrap_)));
    net.copy(bytes(dest.subspan(wrap_, start_)), bytes(in_rank_order.subspan(0, start_)));
  }
  /// Copies all chunks from `source`, which holds them in the circular order of this partition, to
  /// `in_rank_order`. Stores them there in rank order.
  template <channel Channel, buffer Data>
  void unrotate(const Channel& net, const Data& in_rank_order, const Data& source) const {
    net.copy(bytes(in_rank_order.subspan(start_, wrap_)), bytes(source.subspan(0, wrap_)));
    net.copy(bytes(in_rank_order.subspan(0, start_)), bytes(source.subspan(wrap_, start_)));
  }

 private:
  partition parts_;
  int first_;
  std::size_t start_;  // the number of elements before the chunk of `first`, in rank order
  std::size_t wrap_;   // the number of elements in the chunk of `first` and after it, in rank order
};

}  // namespace colls
