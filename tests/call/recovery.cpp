// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include "../support/communicators.hpp"

#include <vector>

// agree and shrink on ranks of one thread.

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

TEST_CASE("the ranks that are left go on with their work") {
  colls::inproc::run(3, [](colls::inproc::communicator& world) -> colls::task<> {
    std::vector<int> data(4, 1);
    if (world.rank() == 1) {
      world = {};
      co_return;
    }
    bool is_lost = false;
    try {
      co_await world.all_reduce(data);
    } catch (const colls::error&) {
      is_lost = true;
    }
    if (is_lost) {
      colls::inproc::communicator left = co_await world.shrink();
      world = std::move(left);
      co_await world.all_reduce(data);
    }
    CHECK(is_lost);
    CHECK(world.size() == 2);
    CHECK(world.previous_rank(1) == 2);
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
    CHECK_FALSE(why.proved);  // it has only closed this communicator
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

// ---- shrink

using communicator = colls::inproc::communicator;

/// Calls shrink on each of these communicators, and returns the results.
std::vector<communicator> shrink(communicators& all, std::vector<communicator*> members,
                                 const colls::recovery_options& opts = {}) {
  std::vector<colls::operation<communicator>> calls;
  for (communicator* each : members) calls.push_back(each->shrink(opts));
  std::vector<communicator> left;
  for (auto& each : calls) left.push_back(all.wait(each));
  return left;
}
std::vector<communicator*> pointers(std::vector<communicator>& all) {
  std::vector<communicator*> result;
  for (communicator& each : all) result.push_back(&each);
  return result;
}
/// Checks that the sum over all these ranks is right.
void check_sum(communicators& all, std::vector<communicator>& ranks) {
  std::vector<std::vector<int>> data(ranks.size(), std::vector<int>(100));
  std::vector<colls::operation<>> calls;
  int sum = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    data[i].assign(100, 1 << i);
    sum += 1 << i;
    calls.push_back(ranks[i].all_reduce(data[i]));
  }
  for (auto& each : calls) all.wait(each);
  for (const std::vector<int>& each : data) CHECK(each == std::vector<int>(100, sum));
}

TEST_CASE("what is left of a world works, and is shrunk again") {
  for (int size = 2; size <= 6; ++size) {
    CAPTURE(size);
    communicators all(size);
    {
      const communicator gone = std::move(all[1]);
    }
    std::vector<communicator*> members;
    for (int rank = 0; rank < size; ++rank) {
      if (rank != 1) members.push_back(&all[rank]);
    }
    std::vector<communicator> left = shrink(all, members);
    for (std::size_t i = 0; i < left.size(); ++i) {
      CHECK(left[i].size() == size - 1);
      CHECK(left[i].rank() == static_cast<int>(i));
      CHECK(left[i].previous_rank(0) == 0);
      for (int rank = 1; rank < size - 1; ++rank) CHECK(left[i].previous_rank(rank) == rank + 1);
      CHECK(left[i].previous_rank(-1) == -1);
      CHECK(left[i].previous_rank(size - 1) == -1);
    }
    check_sum(all, left);
    left.pop_back();
    std::vector<communicator> rest = shrink(all, pointers(left));
    if (rest.empty()) continue;
    CHECK(rest[0].size() == size - 2);
    CHECK(rest[0].previous_rank(0) == 0);
    check_sum(all, rest);
  }
}

TEST_CASE("a communicator without a loss shrinks to the same ranks, and has then failed") {
  communicators all(3);
  std::vector<int> data(8);
  auto waiting = all[0].recv(data, 1);
  auto half = all[2].all_reduce(data);
  CHECK(all[1].previous_rank(2) == 2);
  std::vector<colls::operation<communicator>> calls;
  for (int rank = 0; rank < 3; ++rank) calls.push_back(all[rank].shrink());
  std::vector<communicator> left;
  for (auto& each : calls) left.push_back(all.wait(each));
  CHECK(waiting.done());
  CHECK(half.done());
  CHECK(failure_of(all, waiting).code == errc::revoked);
  CHECK(failure_of(all, half).code == errc::revoked);
  for (const communicator& each : left) CHECK(each.size() == 3);
  check_sum(all, left);
  auto refused = all[1].barrier();
  CHECK(failure_of(all, refused).code == errc::revoked);
  std::vector<communicator> again = shrink(all, {&all[0], &all[1], &all[2]});
  check_sum(all, again);
  check_sum(all, left);
}

TEST_CASE("operations have ended when shrink returns, also on the rank that calls last") {
  colls::inproc::run(3, [](communicator& world) -> colls::task<> {
    std::vector<std::vector<int>> data(3, std::vector<int>(8));
    std::vector<colls::operation<>> half;
    // Ranks 0 and 1 call shrink first, so the agreement comes to its end in the call of rank 2.
    for (std::vector<int>& each : data) {
      if (world.rank() == 2) half.push_back(world.all_reduce(each));
    }
    const communicator left = co_await world.shrink();
    for (auto& each : half) CHECK(each.underlying_call().is_done());
  });
}

TEST_CASE("a shrink that meets an agree is a mismatch on all ranks, and may be repeated") {
  communicators all(3);
  auto first = all[0].shrink();
  auto second = all[1].agree(1);
  auto third = all[2].shrink();
  for (auto* const each : {&first, &third}) CHECK(failure_of(all, *each).code == errc::mismatch);
  CHECK(failure_of(all, second).code == errc::mismatch);
  all.check_good();
  std::vector<communicator> left = shrink(all, {&all[0], &all[1], &all[2]});
  check_sum(all, left);
}

TEST_CASE("one rank alone does not shrink a communicator of others") {
  communicators all(3);
  auto early = all[1].shrink({.timeout = after_ms(300)});
  const colls::failure why = failure_of(all, early);
  CHECK(why.code == errc::timeout);
  CHECK(why.culprit == 0);
  all.check_good();
  // Its first call stands: the others join the same agreement.
  {
    auto dropped = all[0].shrink();
  }
  std::vector<communicator> left = shrink(all, {&all[0], &all[1], &all[2]});
  check_sum(all, left);
}

TEST_CASE("two calls of shrink at once make two communicators") {
  communicators all(3);
  std::vector<colls::operation<communicator>> calls;
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < 3; ++rank) calls.push_back(all[rank].shrink());
  }
  std::vector<communicator> first, second;
  for (std::size_t i = 0; i < 6; ++i) (i < 3 ? first : second).push_back(all.wait(calls[i]));
  check_sum(all, first);
  check_sum(all, second);
}

TEST_CASE("parts of a world are shrunk by their own ranks") {
  communicators all(5);
  std::vector<colls::operation<communicator>> splits;
  for (int rank = 0; rank < 5; ++rank) splits.push_back(all[rank].split(rank % 2));
  std::vector<communicator> parts;
  for (auto& each : splits) parts.push_back(all.wait(each));
  {
    const communicator gone = std::move(parts[2]);
  }
  std::vector<communicator> even = shrink(all, {&parts[0], &parts[4]});
  check_sum(all, even);
  std::vector<communicator> odd;
  odd.push_back(std::move(parts[1]));
  odd.push_back(std::move(parts[3]));
  check_sum(all, odd);
  all.check_good();  // no rank has left the world
}

TEST_CASE("buffers that are registered with the old communicator are refused on the new one") {
  communicators all(2);
  auto memory = all[0].allocate<int>(100);
  auto registered = all[0].register_buffer(memory);
  std::vector<communicator> left = shrink(all, {&all[0], &all[1]});
  auto refused = left[0].all_reduce(registered);
  CHECK(failure_of(all, refused).code == errc::invalid_argument);
}

TEST_CASE("a call with wrong options is refused") {
  communicators all(2);
  auto no_quorum = all[0].agree(1, {.quorum = static_cast<colls::quorum>(7)});
  CHECK(failure_of(all, no_quorum).code == errc::invalid_argument);
  auto no_time = all[0].shrink({.timeout = after_ms(-1)});
  CHECK(failure_of(all, no_time).code == errc::invalid_argument);
  all.check_good();
}

}  // namespace
