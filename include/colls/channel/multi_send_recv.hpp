// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// round: short messages between one rank and many, all at once: with whom, and where each lies.

#include <colls/base/buffer.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>

#include <cstdint>
#include <cstring>

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
    return spaced(with, zeroth, zeroth.size);
  }
  /// Blocks of equal length, from each to the next so many bytes.
  static round_side spaced(pattern::rank_range with, Bytes zeroth, std::size_t stride) {
    return {with, zeroth, stride};
  }
  /// The chunks of `all`, whose elements have so many bytes. `parts` stays where it is.
  static round_side chunks(pattern::rank_range with, Bytes all, const partition& parts,
                           std::size_t element) {
    if (parts.is_blocks()) return blocks(with, {all.data, parts.longest() * element});
    round_side made(with, all, element);
    made.parts_ = &parts;
    return made;
  }

  /// The same with those ranks alone whose number is not 0; `zeroth` is that of rank 0, the next
  /// ones lie `stride` bytes apart. They stay where they are.
  round_side among(const std::uint64_t& zeroth, std::size_t stride) const {
    round_side some = *this;
    some.picks_ = reinterpret_cast<const std::byte*>(&zeroth);
    some.pick_stride_ = stride;
    return some;
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
      if (rank != mine && has(rank)) use(rank);
    }
  }

 private:
  round_side(pattern::rank_range with, Bytes first, std::size_t stride)
      : with_(with), first_(first), stride_(stride) {}

  bool has(int rank) const {
    if (picks_ == nullptr) return true;
    std::uint64_t number = 0;
    std::memcpy(&number, picks_ + static_cast<std::size_t>(rank) * pick_stride_, sizeof number);
    return number != 0;
  }

  pattern::rank_range with_{};
  Bytes first_;
  std::size_t stride_ = 0;            // bytes from one block to the next, or of an element
  const partition* parts_ = nullptr;  // where blocks are no stride apart
  const std::byte* picks_ = nullptr;  // null: all
  std::size_t pick_stride_ = 0;
};

using round_gives = round_side<const_bytes>;
using round_takes = round_side<mutable_bytes>;

}  // namespace colls
