// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Memory for coroutine frames and operations: freed blocks are kept per thread and used again.

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define COLLS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define COLLS_ASAN 1
#endif
#endif
#if defined(COLLS_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace colls::detail {

/// Size classes of 64 bytes up to 8 KiB; larger blocks go to the heap. Blocks may be freed on
/// another thread than the one that took them.
class frame_cache {
 public:
  frame_cache() = default;
  frame_cache(const frame_cache&) = delete;
  frame_cache& operator=(const frame_cache&) = delete;
  ~frame_cache() {
    for (block*& list : free_) {
      while (list != nullptr) {
        block* const next = open(list)->next;
        std::free(list);
        list = next;
      }
    }
    closed_ = true;
  }

  void* take(std::size_t size) {
    const std::size_t slot = (size + granule - 1) / granule;
    if (slot < classes && free_[slot] != nullptr) {
      block* const first = open(free_[slot]);
      free_[slot] = first->next;
      unpoison(first, slot * granule);
      return first;
    }
    return fresh(slot * granule);
  }

  void give(void* memory, std::size_t size) noexcept {
    const std::size_t slot = (size + granule - 1) / granule;
    if (slot >= classes || closed_) {
      std::free(memory);
      return;
    }
    auto* const freed = static_cast<block*>(memory);
    freed->next = free_[slot];
    free_[slot] = freed;
    poison(freed, slot * granule);
  }

 private:
  struct block {
    block* next;
  };
  // Out of line: g++ 12 would see malloc and operator delete, and warn that they do not match.
  [[gnu::noinline]] static void* fresh(std::size_t size) {
    void* const memory = std::malloc(size);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
  }

  static constexpr std::size_t granule = 64;
  static constexpr std::size_t classes = 129;

  // A recycled frame that is used after it was freed must fault under ASan as a heap block does.
#if defined(COLLS_ASAN)
  static void poison(void* memory, std::size_t size) { __asan_poison_memory_region(memory, size); }
  static void unpoison(void* memory, std::size_t size) {
    __asan_unpoison_memory_region(memory, size);
  }
  static block* open(block* memory) {
    unpoison(memory, sizeof(block));
    return memory;
  }
#else
  static void poison(void*, std::size_t) {}
  static void unpoison(void*, std::size_t) {}
  static block* open(block* memory) { return memory; }
#endif

  block* free_[classes] = {};
  bool closed_ = false;
};

// Out of line: compilers keep a thread_local's address across a suspension point.
[[gnu::noinline]] inline frame_cache& this_threads_frames() {
  static thread_local frame_cache cache;
  return cache;
}

/// The same for the memory of containers that live as long as an operation.
template <class T>
struct recycling_allocator {
  using value_type = T;

  recycling_allocator() = default;
  template <class Other>
  recycling_allocator(const recycling_allocator<Other>&) noexcept {}
  T* allocate(std::size_t n) {
    static_assert(alignof(T) <= alignof(std::max_align_t));
    return static_cast<T*>(this_threads_frames().take(n * sizeof(T)));
  }
  void deallocate(T* memory, std::size_t n) noexcept {
    this_threads_frames().give(memory, n * sizeof(T));
  }
  friend bool operator==(recycling_allocator, recycling_allocator) { return true; }
};

/// A list that lives as long as an operation.
template <class T>
using recycled_vector = std::vector<T, recycling_allocator<T>>;

/// Base of what is allocated often: promises and operations.
struct recycled {
  [[gnu::always_inline]] static void* operator new(std::size_t size) {
    return this_threads_frames().take(size);
  }
  static void operator delete(void* memory, std::size_t size) noexcept {
    this_threads_frames().give(memory, size);
  }
};

}  // namespace colls::detail
