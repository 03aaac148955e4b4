// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// round: short messages between one rank and many, all at once: with whom, and where each lies.

#include <colls/buffer.hpp>
#include <colls/partition.hpp>
#include <colls/pattern.hpp>

namespace colls {

/// What a rank sends in a round (`Bytes` is const_bytes) or takes (mutable_bytes): one message for
/// each of some consecutive ranks but itself.
template <class Bytes>
class round_side {
 public:
  /// None.
  round_side() = default;
  /// The same bytes for each.
  static round_side same(pattern::rank_range with, Bytes message) { return {with, message, 0}; }
  /// Blocks of equal length, one behind the other; `zeroth` is that of rank 0.
  static round_side blocks(pattern::rank_range with, Bytes zeroth) {
    return {with, zeroth, zeroth.size};
  }
  /// The chunks of `all`, whose elements have so many bytes. `parts` stays where it is.
  static round_side chunks(pattern::rank_range with, Bytes all, const partition& parts,
                           std::size_t element) {
    if (parts.is_blocks()) return blocks(with, {all.data, parts.longest() * element});
    round_side made(with, all, element);
    made.parts_ = &parts;
    return made;
  }

  int most() const { return with_.size(); }
  Bytes of(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    if (parts_ == nullptr) return {first_.data + at * stride_, first_.size};
    return {first_.data + parts_->offset(rank) * stride_, parts_->count(rank) * stride_};
  }
  /// `use(rank)` for each of the ranks but `mine`.
  template <class Use>
  void each(int mine, const Use& use) const {
    for (int rank = with_.first; rank < with_.last; ++rank) {
      if (rank != mine) use(rank);
    }
  }

 private:
  round_side(pattern::rank_range with, Bytes first, std::size_t stride)
      : with_(with), first_(first), stride_(stride) {}

  pattern::rank_range with_{};
  Bytes first_;
  std::size_t stride_ = 0;            // bytes from one block to the next, or of an element
  const partition* parts_ = nullptr;  // where blocks are no stride apart
};

using round_gives = round_side<const_bytes>;
using round_takes = round_side<mutable_bytes>;

}  // namespace colls
