// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// scratch: temporary memory that an operation needs.

#include <colls/matching/tag_matcher.hpp>

#include <cstddef>

namespace colls {

/// A block of temporary memory. A block of up to 64 bytes is stored inside the `scratch` object. A
/// larger block comes from the rank's scratch_pool. `phantom` is true in a simulation without
/// payload. In this case, the constructor allocates no memory for a larger block, and the bytes of
/// the block must not be accessed.
class scratch {
 public:
  scratch(tag_matcher& matcher, std::size_t size, bool phantom = false)
      : matcher_(matcher), size_(size) {
    if (size > sizeof inline_ && !phantom) {
      block_ = matcher.acquire_scratch(size);
      if (block_.memory == nullptr) throw error(errc::not_enough_memory);
    }
  }
  scratch(const scratch&) = delete;
  scratch& operator=(const scratch&) = delete;
  ~scratch() {
    if (block_.memory != nullptr) matcher_.release_scratch(block_);
  }

  std::byte* data() const {
    return block_.memory != nullptr ? static_cast<std::byte*>(block_.memory) : inline_;
  }
  mutable_bytes all() const { return {data(), size_}; }

 private:
  tag_matcher& matcher_;
  std::size_t size_;
  tag_matcher::block block_;
  alignas(std::max_align_t) mutable std::byte inline_[64];
};

}  // namespace colls
