// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/shm/arena.hpp>

#include <doctest/doctest.h>

namespace {

using namespace colls;
using namespace colls::shm;

constexpr int ranks = 5;
constexpr int peer = 3;

/// A rank's arena and how a peer sees it.
struct ends {
  arena own;
  arena_view seen;

  ends() {
    REQUIRE(!own.make(ranks));
    segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(own.memory().descriptor()))));
    REQUIRE(!seen.map(same, ranks, peer));
  }
};

}  // namespace

TEST_CASE("what the owner writes the peer reads, and the other way") {
  ends both;
  std::byte* const block = both.own.allocate(10'000);
  REQUIRE(block != nullptr);
  const place at = both.own.locate({block + 100, 9900});
  REQUIRE(at != 0);
  CHECK(both.own.locate({block + 101, 12'200}) == 0);
  CHECK(both.own.locate({block - 1, 1}) == 0);
  CHECK(both.own.locate({block, 0}) == 0);
  std::byte* const there = both.seen.at(at, 9900);
  REQUIRE(there != nullptr);
  block[100] = std::byte{1};
  block[9999] = std::byte{2};
  CHECK(there[0] == std::byte{1});
  CHECK(there[9899] == std::byte{2});
  there[5] = std::byte{3};
  CHECK(block[105] == std::byte{3});
}

TEST_CASE("a place that no buffer can have is refused") {
  ends both;
  CHECK(both.seen.at(0, 1) == nullptr);
  CHECK(both.seen.at(arena_head(ranks) - 1, 1) == nullptr);
  CHECK(both.seen.at(arena_bytes, 1) == nullptr);
  CHECK(both.seen.at(arena_bytes - 1, 2) == nullptr);
  CHECK(both.seen.at(UINT64_MAX, SIZE_MAX) == nullptr);
  CHECK(both.seen.at(arena_head(ranks), 1) != nullptr);
}

TEST_CASE("what is no arena is refused") {
  segment other;
  REQUIRE(!other.make(65536));
  arena_view seen;
  CHECK(seen.map(other, ranks, peer) == errc::protocol_error);
}

TEST_CASE("freed memory is used again, as zeros") {
  ends both;
  std::byte* const first = both.own.allocate(8192);
  std::byte* const second = both.own.allocate(8192);
  const place at = both.own.locate({first, 8192});
  CHECK(both.own.locate({second, 1}) == at + 8192);
  first[17] = std::byte{9};
  both.own.free(first);
  CHECK(both.own.locate({first, 1}) == 0);
  std::byte* const third = both.own.allocate(4096);
  CHECK(both.own.locate({third, 1}) == at);
  CHECK(third[17] == std::byte{0});
  CHECK(both.own.locate({both.own.allocate(8192), 1}) == at + 3 * 8192 - 8192);
  CHECK(both.own.allocate(arena_bytes) == nullptr);
}

TEST_CASE("a ticket that was taken back lets nobody in, and says who is inside") {
  ends both;
  const ticket lent = both.own.open();
  REQUIRE(lent != 0);
  both.seen.raise();
  CHECK(both.seen.is_open(lent));
  CHECK(both.own.is_inside(peer));
  CHECK(!both.own.is_inside(peer - 1));
  both.own.revoke(lent);
  CHECK(both.own.is_inside(peer));
  both.seen.lower();
  CHECK(!both.own.is_inside(peer));
  both.seen.raise();
  CHECK(!both.seen.is_open(lent));
  both.seen.lower();
}

TEST_CASE("no ticket is given twice, and there is an end of them") {
  ends both;
  std::vector<ticket> all;
  while (const ticket next = both.own.open()) all.push_back(next);
  CHECK(all.size() == tickets);
  both.own.close(all[7]);
  const ticket again = both.own.open();
  CHECK(again != 0);
  CHECK(again != all[7]);
  CHECK(!both.seen.is_open(all[7]));
  CHECK(both.seen.is_open(again));
  CHECK(both.seen.is_open(all[8]));
}

TEST_CASE("who stays inside a block that was retired writes to pages that nobody has") {
  ends both;
  std::byte* const block = both.own.allocate(8192);
  block[5000] = std::byte{4};
  const place before = both.own.locate({block, 8192});
  std::byte* const there = both.seen.at(before, 8192);
  REQUIRE(both.own.retire(block + 10));
  CHECK(block[5000] == std::byte{4});
  there[5000] = std::byte{5};
  CHECK(block[5000] == std::byte{4});
  const place now = both.own.locate({block, 8192});
  CHECK(now != before);
  CHECK(both.seen.at(now, 8192)[5000] == std::byte{4});
  std::byte* const other = both.own.allocate(8192);
  CHECK(both.own.locate({other, 1}) != before);
}
