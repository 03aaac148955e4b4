// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/coroutine/frame_cache.hpp>

#include <doctest/doctest.h>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace {

using colls::detail::frame_cache;

TEST_CASE("a freed block is used again for its size and no other") {
  frame_cache cache;
  void* const small = cache.allocate(100);
  void* const large = cache.allocate(1000);
  cache.deallocate(small, 100);
  cache.deallocate(large, 1000);
  CHECK(cache.allocate(1000) == large);
  CHECK(cache.allocate(120) == small);  // one granule of 64 holds both
  void* const fresh = cache.allocate(120);
  CHECK(fresh != small);
  cache.deallocate(large, 1000);
  cache.deallocate(small, 120);
  cache.deallocate(fresh, 120);
  CHECK(cache.allocate(65) == fresh);  // last in, first out
  cache.deallocate(fresh, 65);
}

TEST_CASE("blocks of every size can be filled, and are aligned") {
  frame_cache cache;
  for (int round = 0; round < 2; ++round) {
    std::vector<void*> blocks;
    for (std::size_t size = 1; size < 20'000; size += 37) {
      blocks.push_back(cache.allocate(size));
      CHECK(reinterpret_cast<std::uintptr_t>(blocks.back()) % alignof(std::max_align_t) == 0);
      std::memset(blocks.back(), 0xa5, size);
    }
    std::size_t size = 1;
    for (void* block : blocks) {
      cache.deallocate(block, size);
      size += 37;
    }
  }
}

struct counted : colls::detail::recycled {
  std::byte content[300];
};

TEST_CASE("a block may be freed on another thread, also after that thread's cache is gone") {
  counted* made = nullptr;
  std::thread([&] { made = new counted; }).join();
  delete made;
  made = new counted;
  std::thread([&] { delete made; }).join();
}

#if defined(COLLS_DETAIL_ADDRESS_SANITIZER)
TEST_CASE("a block that waits to be used again is poisoned") {
  frame_cache cache;
  auto* const block = static_cast<std::byte*>(cache.allocate(200));
  CHECK_FALSE(__asan_address_is_poisoned(block + 150));
  cache.deallocate(block, 200);
  CHECK(__asan_address_is_poisoned(block));
  CHECK(__asan_address_is_poisoned(block + 150));
  CHECK(cache.allocate(200) == block);
  CHECK_FALSE(__asan_address_is_poisoned(block + 150));
  cache.deallocate(block, 200);
}
#endif

}  // namespace
