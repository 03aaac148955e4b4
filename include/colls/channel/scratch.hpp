// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// scratch: bytes to work in.

#include <colls/matching/tag_matcher.hpp>

#include <cstddef>

namespace colls {

/// Bytes to work in, up to 64 of them in place, else from the rank's recycled memory. A phantom has
/// a size alone.
class scratch {
 public:
  scratch(match& owner, std::size_t size, bool phantom = false) : owner_(owner), size_(size) {
    if (size > sizeof inline_ && !phantom) {
      block_ = owner.take_scratch(size);
      if (block_.memory == nullptr) throw error(errc::not_enough_memory);
    }
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    if (block_.memory != nullptr) owner_.give_scratch(block_);
  }

  std::byte* data() const {
    return block_.memory != nullptr ? static_cast<std::byte*>(block_.memory) : inline_;
  }
  mutable_bytes all() const { return {data(), size_}; }

 private:
  match& owner_;
  std::size_t size_;
  match::block block_;
  alignas(std::max_align_t) mutable std::byte inline_[64];
};

}  // namespace colls
