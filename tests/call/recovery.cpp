// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include "../support/communicators.hpp"

#include <vector>

// agree on ranks of one thread.

namespace {

using colls::agreement;
using colls::errc;

TEST_CASE("ranks agree on the AND of their values, again and again") {
  for (int size = 1; size <= 9; ++size) {
    CAPTURE(size);
    communicators all(size);
    for (std::uint64_t round = 0; round < 3; ++round) {
      std::vector<colls::operation<agreement>> calls;
      std::uint64_t expected = ~std::uint64_t{0};
      for (int rank = 0; rank < size; ++rank) {
        const std::uint64_t value = ~(std::uint64_t{1} << (static_cast<unsigned>(rank) + round));
        expected &= value;
        calls.push_back(all[rank].agree(value));
      }
      for (auto& each : calls) {
        all.wait(each);
        const agreement result = each.result();
        CHECK(result.value == expected);
        CHECK(result.lost.empty());
      }
    }
    all.check_good();
  }
}

TEST_CASE("a step counts if all ranks that are left have done it") {
  colls::inproc::run(3, [](colls::inproc::communicator& world) -> colls::task<> {
    const auto do_step = [&](int step) { return step != 2 || world.rank() != 1; };
    int done = 0;
    for (int step = 0; step < 3; ++step) {
      const bool is_done = do_step(step);
      const colls::agreement all = co_await world.agree(is_done ? 1 : 0);
      if (all.value == 1) ++done;
    }
    CHECK(done == 2);
  });
}

colls::time_span after_ms(int count) {
  return colls::time_span::from_nanoseconds(count * colls::milliseconds);
}

TEST_CASE("a communicator that has failed still agrees, and one that has not stays good") {
  communicators all(4);
  all[2].revoke("enough");
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 4; ++rank) calls.push_back(all[rank].agree(6));
  for (auto& each : calls) {
    const agreement result = all.wait(each);
    CHECK(result.value == 6);
    CHECK(result.lost.empty());
  }
  auto refused = all[0].barrier();
  CHECK(failure_of(all, refused).code == errc::revoked);
}

TEST_CASE("a rank that does not call is named by all others, and its call then ends well") {
  communicators all(5);
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 5; ++rank) {
    if (rank != 3) calls.push_back(all[rank].agree(15, {.timeout = after_ms(1500)}));
  }
  for (auto& each : calls) {
    const colls::failure why = failure_of(all, each);
    CHECK(why.code == errc::timeout);
    CHECK(why.culprit == 3);
    CHECK(says(why, "rank 3 has not made the call yet"));
  }
  all.check_good();
  // The values of the first calls stand.
  calls.clear();
  for (int rank = 0; rank < 5; ++rank) calls.push_back(all[rank].agree(rank == 3 ? 14 : 0));
  for (auto& each : calls) CHECK(all.wait(each).value == 14);
}

TEST_CASE("ranks that pass different options get a mismatch, and may call again") {
  communicators all(3);
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 3; ++rank) {
    calls.push_back(
        all[rank].agree(1, {.quorum = rank == 1 ? colls::quorum::any : colls::quorum::majority}));
  }
  for (auto& each : calls) CHECK(failure_of(all, each).code == errc::mismatch);
  all.check_good();
  calls.clear();
  for (int rank = 0; rank < 3; ++rank) calls.push_back(all[rank].agree(1));
  for (auto& each : calls) CHECK(all.wait(each).value == 1);
}

TEST_CASE("a rank that has closed the communicator is lost, and the communicator has then failed") {
  communicators all(4);
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 4; ++rank) {
    if (rank != 2) calls.push_back(all[rank].agree(static_cast<std::uint64_t>(8 + rank)));
  }
  all.settle();
  all.wait(all[2].close());
  for (auto& each : calls) {
    const agreement result = all.wait(each);
    CHECK(result.value == 8);
    REQUIRE(result.lost.size() == 1);
    CHECK(result.lost[0] == colls::lost_rank{2, true});
  }
  for (const int rank : {0, 1, 3}) {
    auto refused = all[rank].barrier();
    const colls::failure why = failure_of(all, refused);
    CHECK(why.code == errc::peer_failed);
    CHECK(why.culprit == 2);
    CHECK(why.proved);
  }
}

TEST_CASE("several agreements at once end in the order of their calls") {
  communicators all(3);
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 3; ++rank) {
    for (std::uint64_t call = 0; call < 4; ++call) calls.push_back(all[rank].agree(call));
  }
  for (std::size_t i = 0; i < calls.size(); ++i) CHECK(all.wait(calls[i]).value == i % 4);
}

TEST_CASE("an agreement that is dropped stands, and the next call of the rank takes part in it") {
  communicators all(3);
  {
    auto dropped = all[1].agree(3);
    all.settle();
  }
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 3; ++rank) calls.push_back(all[rank].agree(6));
  for (auto& each : calls) CHECK(all.wait(each).value == 2);
  all.check_good();
}

TEST_CASE("a communicator that is destroyed ends its agreement") {
  communicators all(2);
  auto call = all[0].agree(1);
  all.settle();
  all[0] = {};
  CHECK(failure_of(all, call).code == errc::closed);
  auto other = all[1].agree(2);
  const agreement alone = all.wait(other);
  CHECK(alone.value == 2);
  CHECK(alone.lost.size() == 1);
}

TEST_CASE("parts of a world agree on their own") {
  communicators all(5);
  std::vector<colls::operation<colls::inproc::communicator>> splits;
  for (int rank = 0; rank < 5; ++rank) splits.push_back(all[rank].split(rank % 2));
  std::vector<colls::inproc::communicator> parts;
  for (auto& each : splits) parts.push_back(all.wait(each));
  std::vector<colls::operation<agreement>> calls;
  for (int rank = 0; rank < 5; ++rank) {
    calls.push_back(
        parts[static_cast<std::size_t>(rank)].agree(static_cast<std::uint64_t>(16 + rank)));
  }
  for (int rank = 0; rank < 5; ++rank) {
    CHECK(all.wait(calls[static_cast<std::size_t>(rank)]).value == (rank % 2 == 0 ? 16u : 17u));
  }
}

TEST_CASE("a call with wrong options is refused") {
  communicators all(2);
  auto no_quorum = all[0].agree(1, {.quorum = static_cast<colls::quorum>(7)});
  CHECK(failure_of(all, no_quorum).code == errc::invalid_argument);
  auto no_time = all[0].agree(1, {.timeout = after_ms(-1)});
  CHECK(failure_of(all, no_time).code == errc::invalid_argument);
  all.check_good();
}

}  // namespace
