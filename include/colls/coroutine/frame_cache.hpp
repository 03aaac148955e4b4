// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// frame_cache: a cache of memory for coroutine frames and operations. Each thread keeps freed
// blocks for reuse.

#include <colls/base/build_check.hpp>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(COLLS_DETAIL_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace colls::detail {

/// A cache of blocks of up to 8 KiB. Block sizes are rounded up to multiples of 64 bytes. Larger
/// blocks come from the heap. A block may be freed on a thread other than the one that allocated
/// it.
class frame_cache {
 public:
  frame_cache() = default;
  frame_cache(const frame_cache&) = delete;
  frame_cache& operator=(const frame_cache&) = delete;
  ~frame_cache() {
    for (block*& list : free_) {
      while (list != nullptr) {
        block* const next = unpoisoned_header(list)->next;
        std::free(list);
        list = next;
      }
    }
    closed_ = true;
  }

  void* allocate(std::size_t size) {
    const std::size_t size_class = (size + granule - 1) / granule;
    if (size_class < classes && free_[size_class] != nullptr) {
      block* const first = unpoisoned_header(free_[size_class]);
      free_[size_class] = first->next;
      unpoison(first, size_class * granule);
      return first;
    }
    return allocate_new(size_class * granule);
  }

  void deallocate(void* memory, std::size_t size) noexcept {
    const std::size_t size_class = (size + granule - 1) / granule;
    if (size_class >= classes || closed_) {
      std::free(memory);
      return;
    }
    auto* const freed = static_cast<block*>(memory);
    freed->next = free_[size_class];
    free_[size_class] = freed;
    poison(freed, size_class * granule);
  }

 private:
  struct block {
    block* next;
  };
  // This function is not inlined, because g++ 12 would otherwise warn that malloc and operator
  // delete do not match.
  [[gnu::noinline]] static void* allocate_new(std::size_t size) {
    void* const memory = std::malloc(size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }

  static constexpr std::size_t granule = 64;
  static constexpr std::size_t classes = 129;

  // These functions let AddressSanitizer report accesses to freed blocks that are in the cache.
#if defined(COLLS_DETAIL_ADDRESS_SANITIZER)
  static void poison(void* memory, std::size_t size) { __asan_poison_memory_region(memory, size); }
  static void unpoison(void* memory, std::size_t size) {
    __asan_unpoison_memory_region(memory, size);
  }
  static block* unpoisoned_header(block* memory) {
    unpoison(memory, sizeof(block));
    return memory;
  }
#else
  static void poison(void*, std::size_t) {}
  static void unpoison(void*, std::size_t) {}
  static block* unpoisoned_header(block* memory) { return memory; }
#endif

  block* free_[classes] = {};
  bool closed_ = false;
};

// Returns the cache of the calling thread. The function must not be inlined. A coroutine may resume
// on another thread, and inlined code might then still use the cache of the first thread.
[[gnu::noinline]] inline frame_cache& this_thread_frames() {
  static thread_local frame_cache cache;
  return cache;
}

/// An allocator that takes memory from the frame cache. It is meant for containers that exist only
/// during one operation.
template <class T>
struct recycling_allocator {
  using value_type = T;

  recycling_allocator() = default;
  template <class Other>
  recycling_allocator(const recycling_allocator<Other>&) noexcept {}
  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(this_thread_frames().allocate(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    this_thread_frames().deallocate(memory, n * sizeof(T));
  }
  friend bool operator==(recycling_allocator, recycling_allocator) { return true; }
};

/// A vector whose memory comes from the frame cache.
template <class T>
using recycled_vector = std::vector<T, recycling_allocator<T>>;

/// The base class of types that are allocated often, such as promises and operations. Their memory
/// comes from the frame cache.
struct recycled {
  [[gnu::always_inline]] static void* operator new(std::size_t size) {
    return this_thread_frames().allocate(size);
  }
  static void operator delete(void* memory, std::size_t size) noexcept {
    this_thread_frames().deallocate(memory, size);
  }
};

}  // namespace colls::detail
