// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include "../support/communicators.hpp"

#include <set>

// Communicators made from communicators.

namespace {

using colls::errc;
using colls::operation;
using colls::task;
using colls::inproc::communicator;

/// The id of a communicator, from the text of its errors.
std::uint32_t id_of(communicator& comm) {
  std::vector<int> data(1);
  operation<> refused = comm.broadcast(data, -1);
  return refused.reason().communicator;
}

task<int> sum_of_world_ranks(communicator& comm, communicator& world) {
  std::vector<int> data{world.rank()};
  co_await comm.all_reduce(data);
  co_return data[0];
}

TEST_CASE("ranks of one color are together, ordered by key") {
  colls::inproc::run(6, [](communicator& world) -> task<> {
    const int me = world.rank();
    communicator half = co_await world.split(me % 2, -me);
    CHECK(half.size() == 3);
    CHECK(half.rank() == 2 - me / 2);
    CHECK(half.world_rank(0) == 4 + me % 2);
    CHECK(half.world_rank(half.rank()) == me);
    CHECK((co_await sum_of_world_ranks(half, world)) == (me % 2 == 0 ? 6 : 9));

    // Equal keys keep the order of the parent; colors may be any numbers.
    communicator same = co_await half.split(1'000'000'000, 5);
    CHECK(same.rank() == half.rank());
    communicator pair = co_await half.split(half.rank() == 0 ? 7 : 3);
    CHECK(pair.size() == (half.rank() == 0 ? 1 : 2));
    CHECK((co_await sum_of_world_ranks(pair, world)) == (half.rank() == 0 ? me
                                                         : me % 2 == 0    ? 2
                                                                          : 4));
    co_await pair.barrier();
    co_await half.barrier();
  });
}

TEST_CASE("a rank with a negative color gets an empty communicator") {
  colls::inproc::run(4, [](communicator& world) -> task<> {
    const int me = world.rank();
    communicator some = co_await world.split(me == 1 || me == 2 ? 0 : -1 - me);
    CHECK(static_cast<bool>(some) == (me == 1 || me == 2));
    if (some) CHECK((co_await sum_of_world_ranks(some, world)) == 3);
    communicator empty = co_await world.split(-1);
    CHECK_FALSE(empty);
    co_await world.barrier();
  });
}

TEST_CASE("a call on an empty communicator is an error that says so") {
  colls::inproc::run(2, [](communicator& world) -> task<> {
    communicator twin = co_await world.dup();
    communicator moved = std::move(twin);
    communicator empty = co_await world.split(-1);
    std::vector<int> data(3);
    for (communicator* const each : {&twin, &empty}) {
      CHECK_THROWS_WITH_AS((void)each->all_reduce(data), doctest::Contains("no communicator"),
                           colls::error);
      CHECK_THROWS_WITH_AS((void)each->rank(),
                           "colls: invalid_argument: this is no communicator: ranks outside of a "
                           "group or a split get none, and a communicator that was moved leaves "
                           "none (ask `if (comm)`)",
                           colls::error);
      co_await each->close();
    }
    co_await moved.barrier();
  });
}

TEST_CASE("a group is the listed ranks in that order") {
  colls::inproc::run(5, [](communicator& world) -> task<> {
    const int me = world.rank();
    const std::vector<int> list{4, 0, 3};
    communicator three = co_await world.group(list);
    CHECK(static_cast<bool>(three) == (me == 0 || me >= 3));
    if (three) {
      CHECK(three.world_rank(three.rank()) == me);
      CHECK(three.rank() == (me == 4 ? 0 : me == 0 ? 1 : 2));
      std::vector<int> data{me};
      co_await three.broadcast(data, 0);
      CHECK(data[0] == 4);
      const std::vector<unsigned> nested{2, 1};
      communicator two = co_await three.group(nested);
      if (two) {
        std::vector<int> got(2);
        co_await two.all_gather(std::span(&me, 1), got);
        CHECK(got == std::vector<int>{3, 0});
      }
    }
    const std::vector<int> empty;
    CHECK_FALSE(co_await world.group(empty));
  });
}

TEST_CASE("ranks that list different groups, or make another call, get a mismatch") {
  communicators all(2);
  const std::vector<int> one{0, 1};
  const std::vector<int> other{1, 0};
  operation<communicator> first = all[0].group(one);
  operation<communicator> second = all[1].group(other);
  CHECK(failure_of(all, first).code == errc::mismatch);
  CHECK(failure_of(all, second).code == errc::mismatch);
  CHECK(failure_of(all, first).operation == colls::collective::group);
  communicators more(2);
  operation<communicator> third = more[0].group(one);
  operation<communicator> fourth = more[1].dup();
  CHECK(failure_of(more, third).code == errc::mismatch);
  CHECK(failure_of(more, fourth).code == errc::mismatch);
}

TEST_CASE("calls on a duplicate do not match calls on its original") {
  colls::inproc::run(3, [](communicator& world) -> task<> {
    communicator twin = co_await world.dup();
    const int me = world.rank();
    std::vector<int> a{me};
    std::vector<int> b{10 * me};
    std::vector<int> c(1);
    // The ranks use different orders.
    if (me == 0) {
      operation<> first = world.all_reduce(a);
      operation<> second = twin.all_reduce(b);
      co_await second;
      co_await first;
    } else {
      operation<> second = twin.all_reduce(b);
      operation<> first = world.all_reduce(a);
      co_await first;
      co_await second;
    }
    CHECK((a[0] == 3 && b[0] == 30));
    operation<> sent_by_twin = twin.send(a, (me + 1) % 3);
    operation<> sent_by_world = world.send(b, (me + 1) % 3);
    co_await twin.recv(c, colls::any_source);
    CHECK(c[0] == 3);
    co_await world.recv(c, colls::any_source);
    CHECK(c[0] == 30);
    co_await sent_by_twin;
    co_await sent_by_world;
  });
}

TEST_CASE("many at once: every communicator of a rank has an id of its own") {
  communicators all(4);
  std::vector<std::set<std::uint32_t>> ids(4);
  std::vector<std::vector<communicator>> kept(4);
  std::vector<std::vector<operation<communicator>>> in_flight(4);
  const auto note = [&](int rank, communicator made) {
    if (!made) return;
    CHECK(ids[static_cast<std::size_t>(rank)].insert(id_of(made)).second);
    kept[static_cast<std::size_t>(rank)].push_back(std::move(made));
  };
  const auto finish = [&] {
    for (int rank = 0; rank < 4; ++rank) {
      auto& mine = in_flight[static_cast<std::size_t>(rank)];
      for (auto& each : mine) note(rank, all.wait(each));
      mine.clear();
    }
  };
  // Ranks with unequal histories: ranks 2 and 3 make more communicators than the others.
  for (int round = 0; round < 30; ++round) {
    for (int rank = 0; rank < 4; ++rank) {
      in_flight[static_cast<std::size_t>(rank)].push_back(all[rank].split(rank < 2 ? -1 : 0));
      in_flight[static_cast<std::size_t>(rank)].push_back(all[rank].split(rank % 2, round));
    }
    finish();
  }
  // Splits of two parents that share rank 1, both in flight, called in different orders.
  std::vector<communicator> left(4);
  std::vector<communicator> right(4);
  for (int rank = 0; rank < 4; ++rank) {
    in_flight[static_cast<std::size_t>(rank)].push_back(
        all[rank].split(rank == 1 || rank == 2 ? 0 : -1));
    in_flight[static_cast<std::size_t>(rank)].push_back(
        all[rank].split(rank == 1 || rank == 3 ? 0 : -1));
  }
  for (int rank = 0; rank < 4; ++rank) {
    auto& mine = in_flight[static_cast<std::size_t>(rank)];
    left[static_cast<std::size_t>(rank)] = all.wait(mine[0]);
    right[static_cast<std::size_t>(rank)] = all.wait(mine[1]);
    mine.clear();
  }
  const auto divide = [&](std::vector<communicator>& parent, int rank) {
    auto& mine = parent[static_cast<std::size_t>(rank)];
    if (mine) in_flight[static_cast<std::size_t>(rank)].push_back(mine.split(0));
  };
  for (int round = 0; round < 20; ++round) {
    for (const int rank : {1, 2, 3}) divide(left, rank);
    for (const int rank : {3, 2, 1}) divide(right, rank);
  }
  finish();
  // Ids are not used again when their communicators are destroyed.
  for (auto& mine : kept) mine.clear();
  for (int round = 0; round < 30; ++round) {
    for (int rank = 0; rank < 4; ++rank)
      in_flight[static_cast<std::size_t>(rank)].push_back(all[rank].dup());
    finish();
    for (auto& mine : kept) mine.clear();
  }
  all.check_good();
}

TEST_CASE("ids that a rank uses already are not chosen") {
  communicators all(2);
  // Rank 1 already uses the id that the next split would try first.
  colls::tag_matcher& matcher = all.world()[1].matching();
  colls::communicator_state in_use(static_cast<std::uint32_t>(colls::mix(colls::mix(0, 1), 0)), 0,
                                   1, nullptr);
  matcher.add(in_use);
  std::vector<operation<communicator>> made;
  for (int rank = 0; rank < 2; ++rank) made.push_back(all[rank].dup());
  communicator zero = all.wait(made[0]);
  communicator one = all.wait(made[1]);
  CHECK(id_of(zero) == id_of(one));
  CHECK(id_of(one) != in_use.id());
  matcher.remove(in_use);
  all.check_good();
}

TEST_CASE("what happens to a communicator before another rank has made it is not lost") {
  for (const bool drops : {false, true}) {
    for (const int fast : {0, 1}) {
      communicators all(2);
      // The fast rank closes or revokes the communicator as soon as its own call has ended, while
      // the other rank's call has not.
      communicator kept;
      const auto make_and_leave = [&]() -> task<> {
        communicator made = co_await all[fast].dup();
        if (drops) co_return;
        made.revoke("at once");
        kept = std::move(made);
      };
      task<> leaving = make_and_leave();
      operation<communicator> other = all[1 - fast].dup();
      all.wait(leaving);
      communicator late = all.wait(other);
      operation<> later = late.barrier();
      const colls::failure why = failure_of(all, later);
      CHECK(why.code == (drops ? errc::closed : errc::revoked));
      CHECK(why.culprit == fast);
      all.check_good();
    }
  }
}

TEST_CASE("a split that is dropped revokes the parent") {
  communicators all(2);
  {
    operation<communicator> dropped = all[0].split(0);
  }
  operation<communicator> other = all[1].split(0);
  CHECK(failure_of(all, other).code == errc::cancelled);
}

TEST_CASE("a rank whose child communicator another rank has dropped gets the reason") {
  communicators all(2);
  communicator made;
  {
    operation<communicator> dropped = all[0].split(0);
    // All messages have arrived, but rank 0 has not run since.
    operation<communicator> other = all[1].split(0);
    colls::completion ignored;
    REQUIRE(other.start(ignored));
    made = other.result();
  }
  operation<> later = made.barrier();
  const colls::failure why = failure_of(all, later);
  CHECK(why.code == errc::cancelled);
  CHECK(why.culprit == 0);
  CHECK(says(why, "the call that makes this communicator was cancelled"));
}

TEST_CASE("children outlive their parent and the call that made them") {
  communicators all(2);
  std::vector<operation<communicator>> made;
  for (int rank = 0; rank < 2; ++rank) made.push_back(all[rank].dup());
  communicator zero = all.wait(made[0]);
  communicator one = all.wait(made[1]);
  made.clear();
  all[0] = {};
  all[1] = {};
  std::vector<int> a{1};
  std::vector<int> b{2};
  operation<> first = zero.all_reduce(a);
  operation<> second = one.all_reduce(b);
  all.wait(first);
  all.wait(second);
  CHECK((a[0] == 3 && b[0] == 3));
  // A communicator whose operation is dropped is closed with its call.
  communicator taken;
  {
    operation<communicator> left = zero.dup();
    taken = all.wait(one.dup());
    all.settle();
  }
  operation<> later = taken.barrier();
  CHECK(failure_of(all, later).code == errc::closed);
  CHECK(zero.failed() == nullptr);
}

}  // namespace
