// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/interprocess/carrier/shared_memory_frames.hpp>

#include <doctest/doctest.h>

#include <cstring>
#include <utility>
#include <vector>

#include "../../../support/stepped.hpp"

namespace {

using namespace colls;
using namespace colls::interprocess;

/// A reader and the slot that its peer writes.
struct reader {
  shm::segment memory;
  shm::ring_buffer peer;
  shm::ring_buffer ring;
  tag_matcher all{0};
  payload_target target{all};
  shm::slot slot{};

  reader() {
    REQUIRE(!memory.make(shm::connection_bytes(shm::min_ring_buffer_bytes)));
    REQUIRE(!peer.map(memory, 0));
    REQUIRE(!ring.map(memory, 1));
  }
  template <class Begin>
  [[gnu::noinline]] bool take(const Begin& begin) {
    return take_slot(ring, slot, target, begin) == nullptr;
  }
};

constexpr std::uint64_t huge = std::uint64_t{1} << 40;

}  // namespace

#if defined(__x86_64__)

TEST_CASE("a slot is checked as it is used, whenever its writer changes it") {
  const header short_one = make_header(kind::data, {0, 1, 5, 0}, 8, 7);
  header of_no_kind = short_one;
  of_no_kind.kind = static_cast<interprocess::kind>(200);
  header long_one = short_one;
  long_one.length = huge;
  header goodbye_frame = short_one;
  goodbye_frame.kind = kind::goodbye;
  struct state {
    header frame;
    std::uint32_t piece;
  };
  const std::pair<state, state> all[] = {
      {{short_one, 0}, {of_no_kind, 0}},
      {{short_one, 0}, {long_one, 0}},
      {{short_one, 0}, {goodbye_frame, 0}},
      {{short_one, 0}, {short_one, 1U << 31}},
  };
  for (const auto& [first, second] : all) {
    CAPTURE(static_cast<int>(second.frame.kind));
    CAPTURE(second.frame.length);
    CAPTURE(second.piece);
    int frames = 0;
    reader it;
    const auto write = [&](bool is_first) {
      const state& now = is_first ? first : second;
      auto& kind = reinterpret_cast<volatile std::uint8_t&>(it.slot.frame.kind);
      kind = static_cast<std::uint8_t>(now.frame.kind);
      const_cast<volatile std::uint64_t&>(it.slot.frame.length) = now.frame.length;
      const_cast<volatile std::uint32_t&>(it.slot.piece) = now.piece;
    };
    it.slot.frame = first.frame;
    stepped::with_either(write, [&](auto steps_of) {
      it.target.begin(0);
      int begun = 0;
      header frame;
      bool is_valid = false;
      const auto begin = [&](const header& next, const std::byte*) {
        ++begun;
        frame = next;
        it.target.begin(next.length);
        return true;
      };
      const unsigned steps = steps_of([&] { is_valid = it.take(begin); });
      // Neither the kind nor the length is one that was not checked.
      if (is_valid) CHECK(begun == 1);
      if (begun > 0) {
        CHECK(frame.kind == kind::data);
        CHECK((frame.length == 8 || frame.length == huge));
        CHECK(it.target.left() == (frame.length == huge ? huge : 0));
      }
      CHECK(it.ring.readable() == 0);
      frames += begun;
      return steps;
    });
    CHECK(frames > 0);
  }
}

#endif

TEST_CASE("a control frame is passed on as a copy that its sender cannot change") {
  for (const std::size_t size : {sizeof(failure), sizeof(fingerprint)}) {
    CAPTURE(size);
    reader it;
    const header frame = make_header(size == sizeof(failure) ? kind::revoke : kind::fingerprint,
                                     {0, 1, 5, 0}, size, 7);
    const std::vector<std::byte> sent(size, std::byte{5});
    it.peer.write(frame, sent.data(), size);
    const std::byte* const source = it.ring.data();
    int frames = 0;
    const auto begin = [&](const header&, const std::byte* payload) {
      ++frames;
      std::memset(const_cast<std::byte*>(source), 6, size);
      CHECK(std::vector<std::byte>(payload, payload + size) == sent);
      return true;
    };
    CHECK(take_slot(it.ring, *it.ring.front(), it.target, begin) == nullptr);
    CHECK(frames == 1);
    CHECK(it.ring.readable() == 0);
  }
}
