// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// multi_send_recv: describes the buffers of an operation that sends short messages to many ranks
// and receives short messages from many ranks.

#include <colls/base/buffer.hpp>
#include <colls/base/partition.hpp>
#include <colls/base/pattern.hpp>

#include <cstdint>
#include <cstring>

namespace colls {

/// The send buffers or the receive buffers of a multi_send_recv operation. The operation has one
/// message for each rank of a range, but none for this rank itself. `Bytes` is `const_bytes` for
/// sends and `mutable_bytes` for receives.
template <class Bytes>
class multi_send_recv_buffers {
 public:
  /// Constructs an object without messages.
  multi_send_recv_buffers() = default;
  /// Returns an object that uses one buffer, `message`, for all ranks of `ranks`.
  static multi_send_recv_buffers same(pattern::rank_range ranks, Bytes message) {
    return {ranks, message, 0};
  }
  /// Returns an object whose buffers are contiguous blocks of equal length, in rank order. `zeroth`
  /// is the block of rank 0, even if `ranks` begins with another rank.
  static multi_send_recv_buffers blocks(pattern::rank_range ranks, Bytes zeroth) {
    return spaced(ranks, zeroth, zeroth.size);
  }
  /// Returns an object whose buffers are blocks of equal length. The block of each rank begins
  /// `stride` bytes after the beginning of the previous rank's block. `zeroth` is the block of
  /// rank 0, even if `ranks` begins with another rank.
  static multi_send_recv_buffers spaced(pattern::rank_range ranks, Bytes zeroth,
                                        std::size_t stride) {
    return {ranks, zeroth, stride};
  }
  /// Returns an object whose buffers are chunks of the buffer `all`. `parts` tells where each
  /// rank's chunk begins and how many elements it has. An element has `element` bytes. `parts` must
  /// outlive the returned object.
  static multi_send_recv_buffers chunks(pattern::rank_range ranks, Bytes all,
                                        const partition& parts, std::size_t element) {
    if (parts.is_blocks()) return blocks(ranks, {all.data, parts.longest() * element});
    multi_send_recv_buffers result(ranks, all, element);
    result.parts_ = &parts;
    return result;
  }

  /// Returns a copy of this object that leaves out the messages of some ranks. The caller provides
  /// an array that contains a number for each rank. The message of a rank is left out if the rank's
  /// number is 0. `zeroth` refers to the number of rank 0. The numbers of successive ranks lie
  /// `stride` bytes apart. The array must outlive the copy.
  multi_send_recv_buffers where_nonzero(const std::uint64_t& zeroth, std::size_t stride) const {
    multi_send_recv_buffers result = *this;
    result.numbers_ = reinterpret_cast<const std::byte*>(&zeroth);
    result.number_stride_ = stride;
    return result;
  }

  /// Returns an upper bound on the number of messages.
  int max_count() const { return ranks_.size(); }
  Bytes buffer_for(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    if (parts_ == nullptr) return {first_.data + index * stride_, first_.size};
    return {first_.data + parts_->offset(rank) * stride_, parts_->count(rank) * stride_};
  }
  /// Calls `visitor(rank)` for each rank that has a message, except for `own_rank`.
  template <class Visitor>
  void for_each(int own_rank, const Visitor& visitor) const {
    for (int rank = ranks_.first; rank < ranks_.last; ++rank) {
      if (rank != own_rank && has(rank)) visitor(rank);
    }
  }

 private:
  multi_send_recv_buffers(pattern::rank_range ranks, Bytes first, std::size_t stride)
      : ranks_(ranks), first_(first), stride_(stride) {}

  bool has(int rank) const {
    if (numbers_ == nullptr) return true;
    std::uint64_t number = 0;
    std::memcpy(&number, numbers_ + static_cast<std::size_t>(rank) * number_stride_, sizeof number);
    return number != 0;
  }

  pattern::rank_range ranks_{};
  Bytes first_;
  // If `parts_` is null, the distance in bytes between the beginnings of successive ranks' blocks.
  // If `parts_` is not null, the size of an element in bytes.
  std::size_t stride_ = 0;
  const partition* parts_ = nullptr;    // null if the distances between blocks are equal
  const std::byte* numbers_ = nullptr;  // null if all ranks of the range have messages
  std::size_t number_stride_ = 0;
};

using multi_send_buffers = multi_send_recv_buffers<const_bytes>;
using multi_recv_buffers = multi_send_recv_buffers<mutable_bytes>;

}  // namespace colls
