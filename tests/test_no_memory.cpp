// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Where the system refuses memory, what promises to go on does.

#include <colls/match/spare_memory.hpp>
#include <colls/transport/shm/arena.hpp>

#include "counted_memory.hpp"

#include <doctest/doctest.h>

#include <optional>

namespace {

using namespace colls;

/// `work()` with its first allocation refused and then `check()`, the same with its second, and so
/// on until none of them was.
template <class Work, class Check>
void refuse_each(Work work, Check check) {
  std::size_t left = 0;
  for (std::size_t nth = 1; left == 0; ++nth) {
    CAPTURE(nth);
    refused_allocation = nth;
    work();
    left = refused_allocation.exchange(0);
    check();
  }
}

}  // namespace

TEST_CASE("an arena gives no block and no other pages, and loses no place") {
  shm::arena own;
  REQUIRE(!own.make(2));
  const auto place_of = [&](const std::byte* block) { return own.locate({block, 1}); };
  std::byte* const first = own.allocate(1);
  const shm::place begin = place_of(first);
  std::byte* block = nullptr;
  refuse_each([&] { block = own.allocate(1); },
              [&] {
                if (block == nullptr) return;
                CHECK(place_of(block) == begin + shm::longest_page);
                own.free(block);
              });
  first[0] = std::byte{7};
  bool retired = false;
  refuse_each([&]() noexcept { retired = own.retire(first); },
              [&] {
                CHECK(place_of(first) == (retired ? begin + shm::longest_page : begin));
                CHECK(first[0] == std::byte{7});
              });
}

TEST_CASE("working memory that cannot be kept is given to the system") {
  std::optional<spare_memory> spare(std::in_place);
  const std::size_t before = blocks_in_use;
  spare_memory::block used;
  refuse_each([&]() noexcept { spare->give(used); },
              [&] {
                spare.emplace();
                CHECK(blocks_in_use == before);
                used = spare->take(1000);
              });
  spare->give(used);
}
