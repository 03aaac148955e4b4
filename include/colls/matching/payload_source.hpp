// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// payload_source: the payload of a message whose bytes are not contiguous in memory.

#include <colls/base/buffer.hpp>

#include <algorithm>
#include <cstddef>

namespace colls {

/// Copies the payload of a message to a staging buffer, piece by piece. A transport that sends the
/// message reads one piece after the other, so the message never exists as a whole.
class payload_source {
 public:
  /// The type of a function that copies `size` bytes of the payload, beginning with the byte
  /// `offset`, to `dest`.
  using copy_function = void (*)(const void* context, std::size_t offset, std::size_t size,
                                 std::byte* dest);

  /// `context` and `staging` must stay alive as long as the message is sent.
  payload_source(copy_function copy, const void* context, std::size_t size, mutable_bytes staging)
      : copy_(copy), context_(context), size_(size), staging_(staging) {}
  payload_source(const payload_source&) = delete;
  payload_source& operator=(const payload_source&) = delete;

  std::size_t size() const { return size_; }
  /// Returns the bytes from `offset` on that are in the staging buffer, at least one. They are
  /// there until the next call with an offset outside this piece.
  const_bytes at(std::size_t offset) {
    if (offset < begin_ || offset >= end_) {
      begin_ = offset;
      end_ = offset + std::min(staging_.size, size_ - offset);
      copy_(context_, begin_, end_ - begin_, staging_.data);
    }
    return {staging_.data + (offset - begin_), end_ - offset};
  }
  /// Calls `take(offset, piece)` for all pieces.
  template <class Take>
  void for_each_piece(const Take& take) {
    for (std::size_t offset = 0; offset < size_;) {
      const const_bytes piece = at(offset);
      take(offset, piece);
      offset += piece.size;
    }
  }
  /// Copies the whole payload to `dest`.
  void copy_to(std::byte* dest) const { copy_(context_, 0, size_, dest); }

 private:
  copy_function copy_;
  const void* context_;
  std::size_t size_;
  mutable_bytes staging_;
  std::size_t begin_ = 0;  // the bytes of the payload that are in the staging buffer
  std::size_t end_ = 0;
};

}  // namespace colls
