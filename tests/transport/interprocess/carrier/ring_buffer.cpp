// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/carrier/ring_buffer.hpp>

#include "../../../support/paired_threads.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using namespace colls;
using namespace colls::shm;

/// Both ends of a connection, in this process.
struct ends {
  segment memory;
  ring_buffer one;
  ring_buffer other;

  /// The state after `before` frames each way. Their numbers are still in the slots.
  explicit ends(bool checks = false, std::uint64_t before = 0)
      : one(checks, before), other(checks, before) {
    REQUIRE(!memory.make(connection_bytes(min_ring_buffer_bytes)));
    for (const std::size_t side : {0U, 1U}) {
      mapping lines;
      REQUIRE(!lines.map(memory, side * memory.size() / 2, direction_bytes));
      auto& direction_memory = *reinterpret_cast<direction*>(lines.data());
      direction_memory.reader.slots_done = before;
      for (std::uint64_t i = before - std::min<std::uint64_t>(before, slots); i < before; ++i) {
        direction_memory.all[i % slots].number = static_cast<std::uint32_t>(i + 1);
      }
    }
    REQUIRE(!one.map(memory, 0));
    segment same;
    REQUIRE(!same.adopt(detail::descriptor(::dup(memory.descriptor()))));
    REQUIRE(!other.map(same, 1));
  }
};

interprocess::header frame(std::uint64_t sequence, std::size_t length) {
  return interprocess::make_header(interprocess::kind::data, {0, 1, sequence, 0}, length, 7);
}

std::vector<std::byte> pattern(std::size_t size, std::size_t seed) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>(i * 31 + seed);
  return all;
}

bool is(const std::byte* found, const std::vector<std::byte>& expected) {
  return expected.empty() || std::memcmp(found, expected.data(), expected.size()) == 0;
}

}  // namespace

TEST_CASE("a short payload is stored in the slot, for many rounds") {
  ends conn;
  for (std::uint64_t i = 0; i < 5 * slots; ++i) {
    const std::vector<std::byte> payload = pattern(i % (max_inline_bytes + 1), i);
    CHECK(conn.other.front() == nullptr);
    REQUIRE(conn.one.has_slot());
    conn.one.write(frame(i, payload.size()), payload.data(), payload.size());
    const slot* const seen = conn.other.front();
    REQUIRE(seen != nullptr);
    CHECK(seen->frame.sequence == i);
    CHECK(seen->frame.length == payload.size());
    CHECK(seen->piece == 0);
    CHECK(is(seen->data, payload));
    CHECK(conn.other.pop(seen->piece));
    CHECK(conn.other.readable() == 0);
    conn.other.publish_if_due();
    CHECK(conn.one.front() == nullptr);
  }
}

TEST_CASE("a writer that is not read runs out of slots and of room, and gets both back") {
  ends conn;
  std::uint64_t written = 0;
  const std::vector<std::byte> block = pattern(1000, 3);
  while (conn.one.has_slot() && conn.one.room(block.size()) >= block.size()) {
    conn.one.write(frame(++written, block.size()), block.data(), block.size());
  }
  CHECK(written == min_ring_buffer_bytes / block.size());
  CHECK(conn.one.room(1) == min_ring_buffer_bytes % block.size());
  std::uint64_t read = 0;
  while (const slot* const seen = conn.other.front()) {
    CHECK(seen->frame.sequence == ++read);
    CHECK(conn.other.pop(seen->piece));
    CHECK(is(conn.other.data(), block));
    conn.other.take(block.size());
    conn.other.publish_if_due();
  }
  CHECK(read == written);
  CHECK(conn.one.room(min_ring_buffer_bytes / 2) >= min_ring_buffer_bytes / 2);

  written = 0;
  while (conn.one.has_slot()) conn.one.write(frame(++written, 0), nullptr, 0);
  // The reader publishes the slots that it has read in quarters.
  CHECK(written > slots * 3 / 4);
  CHECK(written <= slots);
}

TEST_CASE("frames continue where the numbers of slots wrap, read one by one or after a full ring") {
  const std::vector<std::byte> in_slot = pattern(8, 9);
  const std::vector<std::byte> in_bytes = pattern(100, 9);
  for (const bool checks : {false, true}) {
    for (const std::uint64_t ahead : {std::uint64_t{1}, std::uint64_t{slots}}) {
      CAPTURE(checks);
      CAPTURE(ahead);
      ends conn(checks, (std::uint64_t{1} << 32) - slots - 7);
      const auto exchange = [&](ring_buffer& writer, ring_buffer& reader, std::uint64_t first) {
        for (std::uint64_t i = first; i < first + ahead; ++i) {
          const std::vector<std::byte>& data = i % 2 == 0 ? in_slot : in_bytes;
          REQUIRE(writer.has_slot());
          REQUIRE(writer.room(data.size()) >= data.size());
          writer.write(frame(i, data.size()), data.data(), data.size());
        }
        CHECK(writer.has_slot() == (ahead < slots));
        for (std::uint64_t i = first; i < first + ahead; ++i) {
          const std::vector<std::byte>& data = i % 2 == 0 ? in_slot : in_bytes;
          const slot* const seen = reader.front();
          REQUIRE(seen != nullptr);
          CHECK(reader.has_valid_number());
          CHECK(reader.is_intact(*seen));
          CHECK(seen->frame.sequence == i);
          REQUIRE(reader.pop(seen->piece));
          CHECK(is(seen->piece == 0 ? seen->data : reader.data(), data));
          reader.take(seen->piece);
          reader.publish_if_due();
        }
        // The next slot still holds the number of the previous round.
        CHECK(reader.front() == nullptr);
        CHECK(reader.has_valid_number());
      };
      for (std::uint64_t i = 0; i < 3 * slots; i += ahead) {
        exchange(conn.one, conn.other, i);
        exchange(conn.other, conn.one, i);
      }
    }
  }
}

TEST_CASE("payload across the end of the ring is one piece") {
  ends conn;
  const std::vector<std::byte> piece = pattern(max_piece_bytes - 64, 5);
  for (int i = 0; i < 40; ++i) {
    REQUIRE(conn.one.room(piece.size()) >= piece.size());
    conn.one.write(frame(1, piece.size()), piece.data(), piece.size());
    const slot* const seen = conn.other.front();
    REQUIRE(seen != nullptr);
    REQUIRE(conn.other.pop(seen->piece));
    CHECK(conn.other.readable() == piece.size());
    CHECK(is(conn.other.data(), piece));
    conn.other.take(piece.size());
  }
}

TEST_CASE("a slot that claims more than the ring holds is refused") {
  ends conn;
  const std::vector<std::byte> piece = pattern(100, 5);
  conn.one.write(frame(1, 100), piece.data(), piece.size());
  auto* const seen = const_cast<slot*>(conn.other.front());
  seen->piece = static_cast<std::uint32_t>(min_ring_buffer_bytes + 1);
  CHECK(!conn.other.pop(seen->piece));
}

TEST_CASE("a sleeping rank is woken once, by a peer that wrote or made room") {
  ends conn;
  CHECK(!conn.one.take_wake_request());
  CHECK(conn.other.request_wake());
  CHECK(!conn.one.take_wake_request());
  conn.one.write(frame(1, 0), nullptr, 0);
  CHECK(!conn.other.request_wake());
  CHECK(conn.one.take_wake_request());
  CHECK(!conn.one.take_wake_request());
  conn.one.write(frame(2, 0), nullptr, 0);
  CHECK(!conn.one.take_wake_request());
  conn.other.request_wake();
  conn.other.cancel_wake();
  conn.one.write(frame(3, 0), nullptr, 0);
  CHECK(!conn.one.take_wake_request());

  CHECK(conn.one.request_wake());
  for (int i = 0; i < 3; ++i) {
    const slot* const seen = conn.other.front();
    REQUIRE(seen != nullptr);
    CHECK(conn.other.pop(seen->piece));
    conn.other.publish_if_due();
  }
  CHECK(!conn.other.take_wake_request());
}

TEST_CASE("if a reader falls asleep while a writer writes, one of them sees the other") {
  // Each side stores and then loads what the other side stores. Without a fence between the two,
  // the processor may load first, on both sides.
  ends conn;
  bool sleeps = false;
  bool wakes = false;
  std::uint64_t lost = 0;
  std::uint64_t untaken = 0;
  paired_threads().run(
      100'000, [&](std::uint64_t) { sleeps = conn.other.request_wake(); },
      [&](std::uint64_t i) {
        conn.one.write(frame(i, 0), nullptr, 0);
        wakes = conn.one.take_wake_request();
      },
      [&](std::uint64_t) {
        lost += sleeps && !wakes;
        conn.other.cancel_wake();
        untaken += conn.other.front() == nullptr || !conn.other.pop(0);
        conn.other.publish_if_due();
      });
  CHECK(untaken == 0);
  CHECK(lost == 0);
}

TEST_CASE("ranks that share cores have longer rings, and many ranks use no more memory for them") {
  CHECK(ring_buffer_bytes_for(2, false) == max_ring_buffer_bytes);
  CHECK(ring_buffer_bytes_for(8, false) == max_ring_buffer_bytes / 4);
  CHECK(ring_buffer_bytes_for(64, false) == min_ring_buffer_bytes);
  CHECK(ring_buffer_bytes_for(3, true) == max_ring_buffer_bytes);
  CHECK(ring_buffer_bytes_for(8, true) == max_ring_buffer_bytes);
  CHECK(ring_buffer_bytes_for(16, true) == max_ring_buffer_bytes / 2);
  CHECK(ring_buffer_bytes_for(1000, true) == min_ring_buffer_bytes);
}

TEST_CASE("each part of a connection begins at a multiple of every page size") {
  static_assert(direction_bytes % 65536 == 0);
  for (std::size_t ring = min_ring_buffer_bytes; ring <= max_ring_buffer_bytes; ring *= 2) {
    CHECK(ring % 65536 == 0);
    CHECK(connection_bytes(ring) / 2 % 65536 == 0);
  }
}

TEST_CASE("memory that is missing, too short, or can be taken away is refused") {
  segment created;
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{4096, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  CHECK(created.make(connection_bytes(min_ring_buffer_bytes)) == std::errc::file_too_large);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);

  REQUIRE(!created.make(4096));
  segment taken;
  REQUIRE(!taken.adopt(detail::descriptor(::dup(created.descriptor()))));
  ring_buffer short_one;
  CHECK(short_one.map(taken, 0) == errc::protocol_error);
  segment odd;
  REQUIRE(!odd.make(connection_bytes(min_ring_buffer_bytes + max_page_size)));
  ring_buffer odd_one;
  CHECK(odd_one.map(odd, 0) == errc::protocol_error);
  detail::descriptor loose(::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  REQUIRE(::ftruncate(loose.get(), 4096) == 0);
  CHECK(taken.adopt(std::move(loose)) == errc::protocol_error);
}
