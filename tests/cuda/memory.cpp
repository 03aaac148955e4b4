// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/cuda/memory.hpp>

#include <doctest/doctest.h>

#include <deque>

#include "../stand_in/cuda.hpp"

namespace cuda = colls::cuda;

namespace {

TEST_CASE("a buffer is freed once, by its last owner") {
  stand_in::boot({});
  {
    cuda::device_buffer<double> one(100);
    CHECK(one.span().size() == 100);
    CHECK(one.span().data() == one.data());
    cuda::device_buffer<double> other = std::move(one);
    CHECK(one.data() == nullptr);
    one = std::move(other);
    CHECK(one.size() == 100);
    CHECK(stand_in::allocations() == 1);
    const cuda::pinned_buffer<int> pinned(10);
    CHECK(stand_in::allocations() == 2);
    const cuda::device_buffer<int> none(0);
    CHECK(none.data() == nullptr);
    CHECK(stand_in::allocations() == 2);
  }
  CHECK(stand_in::allocations() == 0);
  CHECK(stand_in::complaints().empty());
}

TEST_CASE("an allocation that fails throws not_enough_memory") {
  stand_in::boot({});
  stand_in::fail("allocate", cuda::api::out_of_memory);
  const auto code_of = [](auto make) {
    try {
      make();
    } catch (const colls::error& thrown) {
      return static_cast<colls::errc>(thrown.code().value());
    }
    return colls::errc{};
  };
  CHECK(code_of([] { cuda::device_buffer<int>(1); }) == colls::errc::not_enough_memory);
  CHECK(code_of([] { cuda::device_buffer<int>(SIZE_MAX / 2); }) == colls::errc::not_enough_memory);
  CHECK(code_of([] { cuda::device_buffer<int>(1); }) == colls::errc{});
}

TEST_CASE("a value that may not be destroyed keeps no value behind it in the free list") {
  cuda::free_list<int> kept;
  int made = 0;
  const auto make = [&made] { return ++made; };
  const auto may_go = [](int which) { return which != 1; };
  const auto none = [](int) { return false; };
  for (int i = 0; i < 3; ++i) kept.give(kept.take(none, may_go, make));
  std::vector<int> checked;
  const auto fits_four = [&checked](int which) {
    checked.push_back(which);
    return which == 4;
  };
  for (std::uint64_t i = 0; i <= kept.max_age; ++i) {
    kept.give(kept.take(fits_four, may_go, make));
  }
  checked.clear();
  (void)kept.take(
      [&checked](int which) {
        checked.push_back(which);
        return false;
      },
      may_go, make);
  CHECK(checked == std::vector<int>{4, 1});
}

TEST_CASE("a pool reuses the memory that was given back") {
  stand_in::boot({});
  {
    cuda::pinned_pool pool(0);
    std::byte* first = nullptr;
    {
      const cuda::pinned_pool::block one(pool, 5000);
      const cuda::pinned_pool::block two(pool, 100'000);
      first = one.data();
      CHECK(one.data() != two.data());
    }
    CHECK(stand_in::allocations() == 2);
    for (int i = 0; i < 10; ++i) {
      const cuda::pinned_pool::block again(pool, 8192);
      CHECK(again.data() == first);
      const cuda::pinned_pool::block large(pool, 70'000);
    }
    CHECK(stand_in::allocations() == 2);
    stand_in::fail("allocate_pinned", cuda::api::out_of_memory);
    CHECK_THROWS_AS(cuda::pinned_pool::block(pool, 1), colls::error);
    const cuda::pinned_pool::block small(pool, 1);
    CHECK(stand_in::allocations() == 3);
  }
  CHECK(stand_in::allocations() == 0);
}

TEST_CASE("a pool frees memory that was not needed for long") {
  stand_in::boot({.devices = 2});
  (void)cuda::api::use_device(0);
  {
    cuda::pinned_pool pool(1);
    {
      std::deque<cuda::pinned_pool::block> many;
      for (std::size_t i = 0; i < 20; ++i) many.emplace_back(pool, std::size_t{4096} << i % 5);
    }
    CHECK(stand_in::allocations() == 20);
    for (int i = 0; i < 3000; ++i) {
      const cuda::pinned_pool::block one(pool, 4096);
      const cuda::pinned_pool::block other(pool, 8192);
    }
    CHECK(stand_in::allocations() == 2);
    CHECK(stand_in::calls("allocate_pinned") == 20);
    int now = -1;
    (void)cuda::api::current_device(now);
    CHECK(now == 0);
  }
  CHECK(stand_in::allocations() == 0);
  CHECK(stand_in::complaints().empty());
}

}  // namespace
