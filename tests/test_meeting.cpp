// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc/meeting.hpp>

#include "ranks.hpp"

#include <doctest/doctest.h>

#include <map>
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
  { const part gone(*of[0]); }
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
  { const part one(*of[1]); }
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

TEST_CASE("a rank that waits elsewhere under the same number hears of the meeting after 100 ms") {
  ranks all(2);
  call zero(all, 0, 4);
  call one(all, 1, 5);
  int byte = 0;
  started waits(all, one.net().recv(0, {reinterpret_cast<std::byte*>(&byte), sizeof byte}));
  const part meets(zero);
  // Only the one that meets asks.
  one.record().announce_after = never;
  all[0].inactivity = all[1].inactivity = 1000 * seconds;
  (*all.world())[0].matching().sweep(zero.record().started + 99 * milliseconds);
  CHECK_FALSE(all[0].failed());
  (*all.world())[0].matching().sweep(zero.record().started + 101 * milliseconds);
  all.settle();
  CHECK(outcome(meets.operation) == errc::mismatch);
  CHECK(waits.operation().result() == errc::mismatch);
}

TEST_CASE("a deadline names a rank that has not come") {
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
    CHECK(all[waiting].why().culprit == late);
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
  meet_operation one(all, world[1].matching(), 0, nullptr, record);
  completion nobody([](completion&) noexcept {}, &world.queue());
  CHECK_FALSE(one.start(nobody));
  CHECK(all.missing(record) == std::vector<int>{3, 2});
  const operation_record other = record;
  CHECK(all.missing(other).empty());
}

}  // namespace
