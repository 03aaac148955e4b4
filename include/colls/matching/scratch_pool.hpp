// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// scratch_pool: recycles the scratch memory (temporary buffers) of the operations of one rank.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace colls {

/// A pool of released memory blocks. `acquire` reuses a block that is long enough and not much
/// longer than requested.
class scratch_pool {
 public:
  /// A block of memory. If `memory` is null, the allocation of the block has failed.
  struct block {
    void* memory = nullptr;
    std::size_t size = 0;
  };

  scratch_pool() = default;
  scratch_pool(const scratch_pool&) = delete;
  scratch_pool& operator=(const scratch_pool&) = delete;
  ~scratch_pool() {
    for (const block& spare : blocks_) std::free(spare.memory);
  }

  /// Returns a block of at least `size` bytes, or a block whose `memory` is null if there is not
  /// enough memory.
  block acquire(std::size_t size) {
    for (std::size_t i = blocks_.size(); i-- > 0;) {
      if (blocks_[i].size >= size && blocks_[i].size / 4 <= size) {
        const block reused = blocks_[i];
        blocks_[i] = blocks_.back();
        blocks_.pop_back();
        return reused;
      }
    }
    return {std::malloc(size), size};
  }
  void release(const block& used) noexcept {
    if (blocks_.size() == max_blocks) {
      std::free(blocks_.front().memory);
      blocks_.erase(blocks_.begin());
    }
    if (has_room()) {
      blocks_.push_back(used);
    } else {
      std::free(used.memory);
    }
  }

 private:
  static constexpr std::size_t max_blocks = 16;

  bool has_room() noexcept {
    try {
      blocks_.reserve(max_blocks);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  std::vector<block> blocks_;
};

}  // namespace colls
