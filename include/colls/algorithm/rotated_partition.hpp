// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// rotated: the chunks of all ranks in the order of a circle that begins with one of them.

#include <colls/algorithm/typed_view.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>
#include <colls/channel/channel.hpp>

namespace colls {

/// A partition in the order first, first + 1, ... around: block i is the chunk of rank first + i.
class rotated {
 public:
  rotated(partition parts, int first)
      : parts_(parts), first_(first), start_(parts.offset(first)), wrap_(parts.total() - start_) {}

  /// Elements of the blocks before this one; i may be one past the last.
  std::size_t offset(int i) const {
    const int rank = first_ + i;
    return rank <= parts_.ranks() ? parts_.offset(rank) - start_
                                  : wrap_ + parts_.offset(rank - parts_.ranks());
  }
  std::size_t count(int i) const { return count({i, i + 1}); }
  std::size_t count(pattern::rank_range blocks) const {
    return offset(blocks.last) - offset(blocks.first);
  }

  /// Where blocks lie in a buffer in rank order: in one piece, or around its end in two.
  template <buffer Data>
  struct place {
    Data head;
    Data tail;
    bool whole() const { return tail.size() == 0; }
  };
  template <buffer Data>
  place<Data> in(const Data& all, pattern::rank_range blocks) const {
    const std::size_t start = offset(blocks.first);
    const std::size_t end = offset(blocks.last);
    if (start >= wrap_) return {all.subspan(start - wrap_, end - start), all.subspan(0, 0)};
    const std::size_t head_end = end < wrap_ ? end : wrap_;
    return {all.subspan(start_ + start, head_end - start), all.subspan(0, end - head_end)};
  }

  /// Copies all chunks from rank order to this order, and back.
  template <channel Channel, buffer Data>
  void turn(const Channel& net, const Data& to, const Data& in_rank_order) const {
    net.copy(bytes(to.subspan(0, wrap_)), bytes(in_rank_order.subspan(start_, wrap_)));
    net.copy(bytes(to.subspan(wrap_, start_)), bytes(in_rank_order.subspan(0, start_)));
  }
  template <channel Channel, buffer Data>
  void turn_back(const Channel& net, const Data& in_rank_order, const Data& from) const {
    net.copy(bytes(in_rank_order.subspan(start_, wrap_)), bytes(from.subspan(0, wrap_)));
    net.copy(bytes(in_rank_order.subspan(0, start_)), bytes(from.subspan(wrap_, start_)));
  }

 private:
  partition parts_;
  int first_;
  std::size_t start_;  // elements before the first block, in rank order
  std::size_t wrap_;   // and from there on
};

}  // namespace colls
