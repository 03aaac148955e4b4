// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/carrier/ring_buffer.hpp>

#include "../../../support/meeting_point.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace colls;
using namespace colls::shm;

/// Both ends of a link in this process.
struct ends {
  segment memory;
  ring one;
  ring other;

  /// As it is after `before` frames each way; what their slots said is still there.
  explicit ends(bool checks = false, std::uint64_t before = 0)
      : one(checks, before), other(checks, before) {
    REQUIRE(!memory.make(link_bytes(shortest_ring)));
    for (const std::size_t side : {0U, 1U}) {
      mapping lines;
      REQUIRE(!lines.map(memory, side * memory.size() / 2, direction_bytes));
      auto& way = *reinterpret_cast<direction*>(lines.data());
      way.reader.slots_done = before;
      for (std::uint64_t i = before - std::min<std::uint64_t>(before, slots); i < before; ++i) {
        way.all[i % slots].number = static_cast<std::uint32_t>(i + 1);
      }
    }
    REQUIRE(!one.map(memory, 0));
    segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(memory.descriptor()))));
    REQUIRE(!other.map(same, 1));
  }
};

tcp::header frame(std::uint64_t sequence, std::size_t length) {
  return tcp::header_for(tcp::kind::data, {0, 1, sequence, 0}, length, 7);
}

std::vector<std::byte> pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 31 + seed);
  return all;
}

bool is(const std::byte* found, const std::vector<std::byte>& wanted) {
  return wanted.empty() || std::memcmp(found, wanted.data(), wanted.size()) == 0;
}

}  // namespace

TEST_CASE("a short payload lies in the slot, both ways, for many rounds") {
  ends link;
  for (std::uint64_t i = 0; i < 5 * slots; ++i) {
    const std::vector<std::byte> word = pattern(i % (longest_inline + 1), i);
    CHECK(link.other.front() == nullptr);
    REQUIRE(link.one.has_slot());
    link.one.write(frame(i, word.size()), word.data(), word.size());
    const slot* const seen = link.other.front();
    REQUIRE(seen != nullptr);
    CHECK(seen->frame.sequence == i);
    CHECK(seen->frame.length == word.size());
    CHECK(seen->piece == 0);
    CHECK(is(seen->data, word));
    CHECK(link.other.pop(seen->piece));
    CHECK(link.other.readable() == 0);
    link.other.settle();
    CHECK(link.one.front() == nullptr);
  }
}

TEST_CASE("a writer that is not read runs out of slots and of room, and gets both back") {
  ends link;
  std::uint64_t written = 0;
  const std::vector<std::byte> block = pattern(1000, 3);
  while (link.one.has_slot() && link.one.room(block.size()) >= block.size()) {
    link.one.write(frame(++written, block.size()), block.data(), block.size());
  }
  CHECK(written == shortest_ring / block.size());
  CHECK(link.one.room(1) == shortest_ring % block.size());
  std::uint64_t read = 0;
  while (const slot* const seen = link.other.front()) {
    CHECK(seen->frame.sequence == ++read);
    CHECK(link.other.pop(seen->piece));
    CHECK(is(link.other.data(), block));
    link.other.take(block.size());
    link.other.settle();
  }
  CHECK(read == written);
  CHECK(link.one.room(shortest_ring / 2) >= shortest_ring / 2);

  written = 0;
  while (link.one.has_slot()) link.one.write(frame(++written, 0), nullptr, 0);
  // The reader tells by quarters.
  CHECK(written > slots * 3 / 4);
  CHECK(written <= slots);
}

TEST_CASE("frames go on where the numbers of slots wrap, one by one or a whole turn ahead") {
  const std::vector<std::byte> in_slot = pattern(8, 9);
  const std::vector<std::byte> in_bytes = pattern(100, 9);
  for (const bool checks : {false, true}) {
    for (const std::uint64_t ahead : {std::uint64_t{1}, std::uint64_t{slots}}) {
      CAPTURE(checks);
      CAPTURE(ahead);
      ends link(checks, (std::uint64_t{1} << 32) - slots - 7);
      const auto exchange = [&](ring& from, ring& to, std::uint64_t first) {
        for (std::uint64_t i = first; i < first + ahead; ++i) {
          const std::vector<std::byte>& data = i % 2 == 0 ? in_slot : in_bytes;
          REQUIRE(from.has_slot());
          REQUIRE(from.room(data.size()) >= data.size());
          from.write(frame(i, data.size()), data.data(), data.size());
        }
        CHECK(from.has_slot() == (ahead < slots));
        for (std::uint64_t i = first; i < first + ahead; ++i) {
          const std::vector<std::byte>& data = i % 2 == 0 ? in_slot : in_bytes;
          const slot* const seen = to.front();
          REQUIRE(seen != nullptr);
          CHECK(to.is_numbered());
          CHECK(to.holds(*seen));
          CHECK(seen->frame.sequence == i);
          REQUIRE(to.pop(seen->piece));
          CHECK(is(seen->piece == 0 ? seen->data : to.data(), data));
          to.take(seen->piece);
          to.settle();
        }
        // The next slot is that of the turn before.
        CHECK(to.front() == nullptr);
        CHECK(to.is_numbered());
      };
      for (std::uint64_t i = 0; i < 3 * slots; i += ahead) {
        exchange(link.one, link.other, i);
        exchange(link.other, link.one, i);
      }
    }
  }
}

TEST_CASE("payload across the end of the ring is one piece") {
  ends link;
  const std::vector<std::byte> piece = pattern(longest_piece - 64, 5);
  for (int i = 0; i < 40; ++i) {
    REQUIRE(link.one.room(piece.size()) >= piece.size());
    link.one.write(frame(1, piece.size()), piece.data(), piece.size());
    const slot* const seen = link.other.front();
    REQUIRE(seen != nullptr);
    REQUIRE(link.other.pop(seen->piece));
    CHECK(link.other.readable() == piece.size());
    CHECK(is(link.other.data(), piece));
    link.other.take(piece.size());
  }
}

TEST_CASE("a slot that claims more than the ring holds is refused") {
  ends link;
  const std::vector<std::byte> piece = pattern(100, 5);
  link.one.write(frame(1, 100), piece.data(), piece.size());
  auto* const seen = const_cast<slot*>(link.other.front());
  seen->piece = static_cast<std::uint32_t>(shortest_ring + 1);
  CHECK(!link.other.pop(seen->piece));
}

TEST_CASE("who sleeps is woken once, by whoever wrote or made room") {
  ends link;
  CHECK(!link.one.must_wake());
  CHECK(link.other.sleep());
  CHECK(!link.one.must_wake());
  link.one.write(frame(1, 0), nullptr, 0);
  CHECK(!link.other.sleep());
  CHECK(link.one.must_wake());
  CHECK(!link.one.must_wake());
  link.one.write(frame(2, 0), nullptr, 0);
  CHECK(!link.one.must_wake());
  link.other.sleep();
  link.other.wake();
  link.one.write(frame(3, 0), nullptr, 0);
  CHECK(!link.one.must_wake());

  CHECK(link.one.sleep());
  for (int i = 0; i < 3; ++i) {
    const slot* const seen = link.other.front();
    REQUIRE(seen != nullptr);
    CHECK(link.other.pop(seen->piece));
    link.other.settle();
  }
  CHECK(!link.other.must_wake());
}

TEST_CASE("of a reader that falls asleep and a writer at the same moment one sees the other") {
  // What each does here is a store, then a load of what the other one stores: without a fence
  // between them a processor may load first, on both sides.
  ends link;
  bool sleeps = false;
  bool wakes = false;
  std::uint64_t lost = 0;
  std::uint64_t untaken = 0;
  meeting_point().run(
      100'000, [&](std::uint64_t) { sleeps = link.other.sleep(); },
      [&](std::uint64_t i) {
        link.one.write(frame(i, 0), nullptr, 0);
        wakes = link.one.must_wake();
      },
      [&](std::uint64_t) {
        lost += sleeps && !wakes;
        link.other.wake();
        untaken += link.other.front() == nullptr || !link.other.pop(0);
        link.other.settle();
      });
  CHECK(untaken == 0);
  CHECK(lost == 0);
}

TEST_CASE("ranks that share cores have longer rings, and many ranks no more memory for it") {
  CHECK(ring_for(2, false) == longest_ring);
  CHECK(ring_for(8, false) == longest_ring / 4);
  CHECK(ring_for(64, false) == shortest_ring);
  CHECK(ring_for(3, true) == longest_ring);
  CHECK(ring_for(8, true) == longest_ring);
  CHECK(ring_for(16, true) == longest_ring / 2);
  CHECK(ring_for(1000, true) == shortest_ring);
}

TEST_CASE("each part of a link begins where pages of any length do") {
  static_assert(direction_bytes % 65536 == 0);
  for (std::size_t ring = shortest_ring; ring <= longest_ring; ring *= 2) {
    CHECK(ring % 65536 == 0);
    CHECK(link_bytes(ring) / 2 % 65536 == 0);
  }
}

TEST_CASE("memory that is missing, too short, or can be taken away is refused") {
  segment made;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK(made.make(link_bytes(shortest_ring)) == std::errc::file_too_large);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);

  REQUIRE(!made.make(4096));
  segment taken;
  REQUIRE(!taken.adopt(detail::descriptor(::dup(made.descriptor()))));
  ring short_one;
  CHECK(short_one.map(taken, 0) == errc::protocol_error);
  segment odd;
  REQUIRE(!odd.make(link_bytes(shortest_ring + longest_page)));
  ring odd_one;
  CHECK(odd_one.map(odd, 0) == errc::protocol_error);
  detail::descriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(loose.get(), 4096) == 0);
  CHECK(taken.adopt(std::move(loose)) == errc::protocol_error);
}
