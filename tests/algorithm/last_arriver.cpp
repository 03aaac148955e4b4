// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc/completion_barrier.hpp>

#include <colls/algorithm/last_arriver.hpp>

#include "../support/ranks.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <map>
#include <stdexcept>
#include <string>

namespace {

using namespace colls;
using meet_operation = inproc::meet_operation;

/// One rank's part, started at once.
struct part : completion {
  explicit part(call& of, void* mine = nullptr, int lane = 0)
      : completion([](completion& self) noexcept { static_cast<part&>(self).ended = true; },
                   &of.net().net().queue()),
        operation(of.net().lane(lane).meet(mine)) {
    ended = operation.start(*this);
  }

  bool ended = false;
  meet_operation operation;
};
using parts = std::vector<std::unique_ptr<part>>;
using calls = std::vector<std::unique_ptr<call>>;

/// The next call of every rank.
calls call_all(ranks& all, std::uint64_t count = 0) {
  calls made;
  for (int rank = 0; rank < all.world()->size(); ++rank) {
    made.push_back(std::make_unique<call>(all, rank, count));
  }
  return made;
}

TEST_CASE("the last to come sees what all gave, and the others wait until it lets them go") {
  for (const int size : {1, 2, 3, 8}) {
    CAPTURE(size);
    for (int first = 0; first < size; ++first) {
      ranks all(size);
      const calls of = call_all(all);
      std::vector<int> data(static_cast<std::size_t>(size));
      parts came;
      for (int i = 0; i < size; ++i) {
        for (const auto& before : came) CHECK_FALSE(before->ended);
        const auto rank = static_cast<std::size_t>((first + i) % size);
        came.push_back(std::make_unique<part>(*of[rank], &data[rank]));
        all.settle();
        CHECK(came.back()->operation.is_last() == (i == size - 1));
      }
      part& last = *came.back();
      CHECK(last.ended);
      std::map<int, void*> gave;
      last.operation.each_other([&](int rank, void* theirs) { gave[rank] = theirs; });
      CHECK(gave.size() == came.size() - 1);
      for (const auto& [rank, theirs] : gave) {
        CHECK(theirs == &data[static_cast<std::size_t>(rank)]);
      }
      CHECK(gave.count((first + size - 1) % size) == 0);
      for (int i = 0; i < size - 1; ++i) CHECK_FALSE(came[static_cast<std::size_t>(i)]->ended);
      last.operation.release();
      all.settle();
      for (const auto& one : came) {
        CHECK(one->ended);
        CHECK_FALSE(outcome(one->operation));
      }
    }
  }
}

TEST_CASE("meetings of several calls, lanes and communicators stay apart") {
  ranks all(2);
  ranks others(all.world(), 2);
  const calls first = call_all(all);
  const calls second = call_all(all);
  const calls elsewhere = call_all(others);
  part one(*first[0]);
  part two(*first[0], nullptr, 1);
  part three(*second[0]);
  part four(*elsewhere[0]);
  const auto ended = [&] {
    all.settle();
    return std::vector<bool>{one.ended, two.ended, three.ended, four.ended};
  };
  const auto join = [](call& with, int lane = 0) {
    part last(with, nullptr, lane);
    CHECK(last.ended);
    last.operation.release();
  };
  // In another order than they began.
  join(*second[1]);
  CHECK(ended() == std::vector<bool>{false, false, true, false});
  join(*elsewhere[1]);
  CHECK(ended() == std::vector<bool>{false, false, true, true});
  join(*first[1], 1);
  CHECK(ended() == std::vector<bool>{false, true, true, true});
  join(*first[1]);
  CHECK(ended() == std::vector<bool>{true, true, true, true});
}

TEST_CASE("the same ranks can meet again and again in one lane") {
  ranks all(3);
  const calls of = call_all(all);
  for (int i = 0; i < 3; ++i) {
    part zero(*of[0]);
    part one(*of[1]);
    part two(*of[2]);
    REQUIRE(two.ended);
    two.operation.release();
    // Here before the others have heard that they may go.
    part again(*of[2]);
    CHECK_FALSE(again.ended);
    all.settle();
    CHECK((zero.ended && one.ended));
    CHECK_FALSE(again.ended);
  }
}

TEST_CASE("who withdraws is not there: a meeting without it goes on waiting") {
  for (int gone = 0; gone < 3; ++gone) {
    CAPTURE(gone);
    ranks all(4);
    const calls of = call_all(all);
    parts came;
    for (std::size_t rank = 0; rank < 3; ++rank) came.push_back(std::make_unique<part>(*of[rank]));
    const auto at = static_cast<std::size_t>(gone);
    came[at].reset();
    part last(*of[3]);
    CHECK_FALSE(last.ended);
    CHECK_FALSE(last.operation.is_last());
    // It may come after all.
    came[at] = std::make_unique<part>(*of[at]);
    REQUIRE(came[at]->ended);
    int others = 0;
    came[at]->operation.each_other([&](int rank, void*) {
      CHECK(rank != gone);
      ++others;
    });
    CHECK(others == 3);
    came[at]->operation.release();
    all.settle();
    for (const auto& one : came) CHECK(one->ended);
    CHECK(last.ended);
  }
}

TEST_CASE("a meeting in which all have withdrawn is none") {
  ranks all(2);
  const calls of = call_all(all);
  {
    const part gone(*of[0]);
  }
  part one(*of[1]);
  CHECK_FALSE(one.ended);
  part zero(*of[0]);
  CHECK(zero.ended);
  zero.operation.release();
}

TEST_CASE("revoking ends who waits, of that communicator alone, also while the last one works") {
  for (const bool working : {false, true}) {
    CAPTURE(working);
    ranks all(3);
    ranks others(all.world(), 2);
    const calls of = call_all(all);
    const calls elsewhere = call_all(others);
    part apart(*elsewhere[0]);
    part zero(*of[0]);
    part also(*of[0], nullptr, 1);
    part one(*of[1]);
    part also_apart(*elsewhere[0], nullptr, 1);
    std::unique_ptr<part> two;
    if (working) {
      two = std::make_unique<part>(*of[2]);
      REQUIRE(two->operation.is_last());
    }
    of[2]->net().revoke(failure(errc::user_op_failed));
    if (working) two->operation.release();
    all.settle();
    for (const part* waited : {&zero, &also, &one}) {
      CHECK(waited->ended);
      CHECK(outcome(waited->operation) == errc::user_op_failed);
    }
    CHECK_FALSE(apart.ended);
    CHECK_FALSE(also_apart.ended);
    // What comes later ends at once.
    const part late(*of[1]);
    CHECK(late.ended);
    CHECK(outcome(late.operation) == errc::user_op_failed);
  }
}

TEST_CASE("the last one ends without a word: the others go with the communicator") {
  ranks all(2);
  const calls of = call_all(all);
  const part zero(*of[0]);
  {
    const part one(*of[1]);
  }
  all.settle();
  CHECK_FALSE(zero.ended);
  of[1]->net().revoke(failure(errc::not_enough_memory));
  all.settle();
  CHECK(zero.ended);
  CHECK(outcome(zero.operation) == errc::not_enough_memory);
}

TEST_CASE("ranks of different calls do not meet: both are named") {
  ranks all(3);
  call zero(all, 0, 4);
  call one(all, 1, 5);
  const part waits(zero);
  const part comes(one);
  all.settle();
  CHECK((waits.ended && comes.ended));
  CHECK(outcome(waits.operation) == errc::mismatch);
  CHECK(outcome(comes.operation) == errc::mismatch);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(all[rank].failed());
    const std::string sentence = all[rank].why().detail;
    CHECK(sentence.find("rank 0 called all_reduce of 4") != std::string::npos);
    CHECK(sentence.find("rank 1 called all_reduce of 5") != std::string::npos);
  }
}

TEST_CASE("a rank in another call under the same number is found, whoever of the two is first") {
  for (const bool meets_first : {false, true}) {
    CAPTURE(meets_first);
    ranks all(3);
    // Rank 2 is the one that rank 0 asks for.
    call zero(all, 0, 4);
    std::unique_ptr<part> meets;
    if (meets_first) meets = std::make_unique<part>(zero);
    call two(all, 2, 5);
    int byte = 0;
    started waits(all, two.net().recv(1, {reinterpret_cast<std::byte*>(&byte), sizeof byte}));
    if (!meets_first) meets = std::make_unique<part>(zero);
    all.settle();
    CHECK((meets->ended && waits.ended()));
    CHECK(outcome(meets->operation) == errc::mismatch);
    CHECK(waits.operation().result() == errc::mismatch);
    for (int rank = 0; rank < 3; ++rank) CHECK(all[rank].why().code == errc::mismatch);
  }
}

TEST_CASE("a rank that has left is not waited for") {
  for (const bool leaves_first : {false, true}) {
    CAPTURE(leaves_first);
    ranks all(2);
    call zero(all, 0);
    all[0].inactivity = 1000 * seconds;
    std::unique_ptr<part> waits;
    if (!leaves_first) waits = std::make_unique<part>(zero);
    (*all.world())[1].matching().remove(all[1]);
    if (leaves_first) waits = std::make_unique<part>(zero);
    // It was there when it was asked for: it hears of the meeting after 100 ms.
    if (!leaves_first) {
      (*all.world())[0].matching().sweep(zero.record().started + 101 * milliseconds);
    }
    all.settle();
    CHECK(waits->ended);
    CHECK(outcome(waits->operation) == errc::closed);
  }
}

TEST_CASE("a deadline names a rank that has not come, though not as late: it has made the call") {
  for (const int late : {0, 1, 2}) {
    CAPTURE(late);
    ranks all(3);
    const calls of = call_all(all);
    parts came;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != late) came.push_back(std::make_unique<part>(*of[static_cast<std::size_t>(rank)]));
    }
    const int waiting = late == 0 ? 1 : 0;
    operation_record& record = of[static_cast<std::size_t>(waiting)]->record();
    record.deadline = record.started + milliseconds;
    (*all.world())[waiting].matching().sweep(record.deadline);
    all.settle();
    for (const auto& one : came) CHECK(outcome(one->operation) == errc::timeout);
    CHECK(all[waiting].why().waited_for == late);
    CHECK(all[waiting].why().culprit == -1);
  }
}

TEST_CASE("who missed are ranks of the world, in what order ever the communicator has them") {
  inproc_world world(4);
  const auto members = std::make_shared<const std::vector<int>>(std::vector<int>{3, 1, 2});
  communicator_state state(7, 1, 3, members);
  operation_record record;
  record.communicator = &state;
  record.sequence = 1;
  inproc::meetings all;
  for (int rank = 0; rank < 4; ++rank) all.add_rank(world[rank].matching());
  meet_operation one(all, world[1].matching(), 0, nullptr, record);
  completion nobody([](completion&) noexcept {}, &world.queue());
  CHECK_FALSE(one.start(nobody));
  CHECK(all.missing(record) == std::vector<int>{3, 2});
  const operation_record other = record;
  CHECK(all.missing(other).empty());
}

/// Neither commutes nor associates: whoever adds in another order or other groups gets other words.
struct words {
  std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return mix(mix(1, a), b); }
};
/// What recursive_doubling leaves, by its own account.
std::uint64_t doubled(std::vector<std::uint64_t> all) {
  const words op;
  const std::size_t corners = std::bit_floor(all.size());
  for (std::size_t at = 0; all.size() > corners; ++at) {
    all[at] = op(all[at], all[at + 1]);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  while (all.size() > 1) {
    for (std::size_t at = 0; at < all.size() / 2; ++at) all[at] = op(all[2 * at], all[2 * at + 1]);
    all.resize(all.size() / 2);
  }
  return all[0];
}

using numbers = std::vector<std::uint64_t>;
using doubling =
    at_meeting::all_reduce<call::channel, any_buffer, any_op, at_meeting::in_doubled_groups>;

task<> sum(call& of, numbers& in, numbers& out, any_op op) {
  const any_buffer from(in.data(), in.size(), sizeof(std::uint64_t));
  const any_buffer to(out.data(), out.size(), sizeof(std::uint64_t));
  return in_one_step<doubling>(of.net(), from, to, op);
}

TEST_CASE("the last to come makes the sums of recursive_doubling, for all ranks") {
  const words op;
  for (const bool in_place : {false, true}) {
    for (int size = 1; size <= 9; ++size) {
      for (const std::size_t n :
           {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{5000}}) {
        CAPTURE(size);
        CAPTURE(n);
        ranks all(size);
        const calls of = call_all(all);
        std::vector<numbers> in;
        for (int rank = 0; rank < size; ++rank) {
          in.emplace_back();
          for (std::size_t i = 0; i < n; ++i) in.back().push_back(mix(i, std::uint64_t(rank) + 7));
        }
        const std::vector<numbers> given = in;
        std::vector<numbers> out =
            in_place ? std::vector<numbers>() : std::vector(in.size(), numbers(n));
        std::vector<task<>> tasks;
        for (int rank = 0; rank < size; ++rank) {
          const auto at = static_cast<std::size_t>((rank + size / 2) % size);
          tasks.push_back(
              sum(*of[at], in[at], in_place ? in[at] : out[at], erase<std::uint64_t>(op).op));
        }
        sync_wait(*all.world(), when_all(std::move(tasks)));
        for (std::size_t i = 0; i < n; ++i) {
          numbers gave;
          for (const numbers& each : given) gave.push_back(each[i]);
          const std::uint64_t want = doubled(gave);
          for (const numbers& found : in_place ? in : out) REQUIRE(found[i] == want);
        }
        if (!in_place) CHECK(in == given);
      }
    }
  }
}

struct throwing {
  std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const {
    if (a + b > limit) throw std::runtime_error("cannot add");
    return a + b;
  }
  std::uint64_t limit;
};

TEST_CASE("a sum that throws ends all ranks, with its words") {
  // In the first round, in one pair of it, in the second.
  for (const std::uint64_t limit : {0u, 3u, 8u}) {
    CAPTURE(limit);
    const throwing op{limit};
    ranks all(4);
    const calls of = call_all(all);
    std::vector<numbers> data = {{1}, {2}, {3}, {4}};
    std::vector<std::unique_ptr<started<task<>>>> each;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      each.push_back(std::make_unique<started<task<>>>(
          all, sum(*of[rank], data[rank], data[rank], erase<std::uint64_t>(op).op)));
    }
    all.settle();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      REQUIRE(each[rank]->ended());
      CHECK_THROWS_AS(each[rank]->operation().result(), error);
      const failure& why = all[static_cast<int>(rank)].why();
      CHECK(why.code == errc::user_op_failed);
      CHECK(std::string(why.detail) == "the reduction threw: cannot add");
    }
  }
}

}  // namespace
