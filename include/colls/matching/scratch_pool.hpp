// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// spare_memory: working memory of a rank, used again.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace colls {

/// Keeps a few pieces that were given back, and gives one that is not much longer than asked for.
class spare_memory {
 public:
  /// A piece; null when there is no memory.
  struct block {
    void* memory = nullptr;
    std::size_t size = 0;
  };

  spare_memory() = default;
  spare_memory(const spare_memory&) = delete;
  spare_memory& operator=(const spare_memory&) = delete;
  ~spare_memory() {
    for (const block& kept : spare_) std::free(kept.memory);
  }

  /// At least `size` bytes.
  block take(std::size_t size) {
    for (std::size_t i = spare_.size(); i-- > 0;) {
      if (spare_[i].size >= size && spare_[i].size / 4 <= size) {
        const block found = spare_[i];
        spare_[i] = spare_.back();
        spare_.pop_back();
        return found;
      }
    }
    return {std::malloc(size), size};
  }
  void give(const block& used) noexcept {
    if (spare_.size() == most) {
      std::free(spare_.front().memory);
      spare_.erase(spare_.begin());
    }
    if (has_room()) {
      spare_.push_back(used);
    } else {
      std::free(used.memory);
    }
  }

 private:
  static constexpr std::size_t most = 16;

  bool has_room() noexcept {
    try {
      spare_.reserve(most);
    } catch (const std::bad_alloc&) {
      return false;
    }
    return true;
  }

  std::vector<block> spare_;
};

}  // namespace colls
