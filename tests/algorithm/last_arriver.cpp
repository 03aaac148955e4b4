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
using completion_barrier = inproc::completion_barrier;

/// One rank's arrival, started at once.
struct arrival : completion {
  explicit arrival(call& started_call, void* mine = nullptr, int lane = 0)
      : completion([](completion& self) noexcept { static_cast<arrival&>(self).ended = true; },
                   &started_call.net().net().queue()),
        operation(started_call.net().lane(lane).arrive(mine)) {
    ended = operation.start(*this);
  }

  bool ended = false;
  completion_barrier operation;
};
using arrivals = std::vector<std::unique_ptr<arrival>>;
using calls = std::vector<std::unique_ptr<call>>;

/// Makes the next call of every rank.
calls call_all(ranks& all, std::uint64_t count = 0) {
  calls made;
  for (int rank = 0; rank < all.world()->size(); ++rank) {
    made.push_back(std::make_unique<call>(all, rank, count));
  }
  return made;
}

TEST_CASE(
    "the last arriver gets the arguments of all, and the others wait until it releases them") {
  for (const int size : {1, 2, 3, 8}) {
    CAPTURE(size);
    for (int first = 0; first < size; ++first) {
      ranks all(size);
      const calls started_calls = call_all(all);
      std::vector<int> data(static_cast<std::size_t>(size));
      arrivals arrived;
      for (int i = 0; i < size; ++i) {
        for (const auto& before : arrived) CHECK_FALSE(before->ended);
        const auto rank = static_cast<std::size_t>((first + i) % size);
        arrived.push_back(std::make_unique<arrival>(*started_calls[rank], &data[rank]));
        all.settle();
        CHECK(arrived.back()->operation.is_last() == (i == size - 1));
      }
      arrival& last = *arrived.back();
      CHECK(last.ended);
      std::map<int, void*> arguments;
      last.operation.for_each_other([&](int rank, void* remote) { arguments[rank] = remote; });
      CHECK(arguments.size() == arrived.size() - 1);
      for (const auto& [rank, remote] : arguments) {
        CHECK(remote == &data[static_cast<std::size_t>(rank)]);
      }
      CHECK(arguments.count((first + size - 1) % size) == 0);
      for (int i = 0; i < size - 1; ++i) CHECK_FALSE(arrived[static_cast<std::size_t>(i)]->ended);
      last.operation.release();
      all.settle();
      for (const auto& one : arrived) {
        CHECK(one->ended);
        CHECK_FALSE(outcome(one->operation));
      }
    }
  }
}

TEST_CASE("barriers of several calls, lanes and communicators are separate") {
  ranks all(2);
  ranks others(all.world(), 2);
  const calls first = call_all(all);
  const calls second = call_all(all);
  const calls elsewhere = call_all(others);
  arrival one(*first[0]);
  arrival two(*first[0], nullptr, 1);
  arrival three(*second[0]);
  arrival four(*elsewhere[0]);
  const auto ended = [&] {
    all.settle();
    return std::vector<bool>{one.ended, two.ended, three.ended, four.ended};
  };
  const auto arrive_last = [](call& last_call, int lane = 0) {
    arrival last(last_call, nullptr, lane);
    CHECK(last.ended);
    last.operation.release();
  };
  // In another order than they began.
  arrive_last(*second[1]);
  CHECK(ended() == std::vector<bool>{false, false, true, false});
  arrive_last(*elsewhere[1]);
  CHECK(ended() == std::vector<bool>{false, false, true, true});
  arrive_last(*first[1], 1);
  CHECK(ended() == std::vector<bool>{false, true, true, true});
  arrive_last(*first[1]);
  CHECK(ended() == std::vector<bool>{true, true, true, true});
}

TEST_CASE("the same ranks can use the barrier again and again in one lane") {
  ranks all(3);
  const calls started_calls = call_all(all);
  for (int i = 0; i < 3; ++i) {
    arrival zero(*started_calls[0]);
    arrival one(*started_calls[1]);
    arrival two(*started_calls[2]);
    REQUIRE(two.ended);
    two.operation.release();
    // Arrives again before the others have been released.
    arrival again(*started_calls[2]);
    CHECK_FALSE(again.ended);
    all.settle();
    CHECK((zero.ended && one.ended));
    CHECK_FALSE(again.ended);
  }
}

TEST_CASE("a rank that withdraws has not arrived: the others go on waiting") {
  for (int gone = 0; gone < 3; ++gone) {
    CAPTURE(gone);
    ranks all(4);
    const calls started_calls = call_all(all);
    arrivals arrived;
    for (std::size_t rank = 0; rank < 3; ++rank)
      arrived.push_back(std::make_unique<arrival>(*started_calls[rank]));
    const auto at = static_cast<std::size_t>(gone);
    arrived[at].reset();
    arrival last(*started_calls[3]);
    CHECK_FALSE(last.ended);
    CHECK_FALSE(last.operation.is_last());
    // It may still arrive.
    arrived[at] = std::make_unique<arrival>(*started_calls[at]);
    REQUIRE(arrived[at]->ended);
    int others = 0;
    arrived[at]->operation.for_each_other([&](int rank, void*) {
      CHECK(rank != gone);
      ++others;
    });
    CHECK(others == 3);
    arrived[at]->operation.release();
    all.settle();
    for (const auto& one : arrived) CHECK(one->ended);
    CHECK(last.ended);
  }
}

TEST_CASE("a barrier that all ranks have withdrawn from is forgotten") {
  ranks all(2);
  const calls started_calls = call_all(all);
  {
    const arrival gone(*started_calls[0]);
  }
  arrival one(*started_calls[1]);
  CHECK_FALSE(one.ended);
  arrival zero(*started_calls[0]);
  CHECK(zero.ended);
  zero.operation.release();
}

TEST_CASE(
    "revoking ends the waiting ranks of that communicator alone, also while the last arriver "
    "works") {
  for (const bool working : {false, true}) {
    CAPTURE(working);
    ranks all(3);
    ranks others(all.world(), 2);
    const calls started_calls = call_all(all);
    const calls elsewhere = call_all(others);
    arrival unrelated(*elsewhere[0]);
    arrival zero(*started_calls[0]);
    arrival also(*started_calls[0], nullptr, 1);
    arrival one(*started_calls[1]);
    arrival also_unrelated(*elsewhere[0], nullptr, 1);
    std::unique_ptr<arrival> two;
    if (working) {
      two = std::make_unique<arrival>(*started_calls[2]);
      REQUIRE(two->operation.is_last());
    }
    started_calls[2]->net().revoke(failure(errc::user_op_failed));
    if (working) two->operation.release();
    all.settle();
    for (const arrival* waited : {&zero, &also, &one}) {
      CHECK(waited->ended);
      CHECK(outcome(waited->operation) == errc::user_op_failed);
    }
    CHECK_FALSE(unrelated.ended);
    CHECK_FALSE(also_unrelated.ended);
    // A later arrival ends at once.
    const arrival late(*started_calls[1]);
    CHECK(late.ended);
    CHECK(outcome(late.operation) == errc::user_op_failed);
  }
}

TEST_CASE("if the last arriver ends without a release, the others end with the communicator") {
  ranks all(2);
  const calls started_calls = call_all(all);
  const arrival zero(*started_calls[0]);
  {
    const arrival one(*started_calls[1]);
  }
  all.settle();
  CHECK_FALSE(zero.ended);
  started_calls[1]->net().revoke(failure(errc::not_enough_memory));
  all.settle();
  CHECK(zero.ended);
  CHECK(outcome(zero.operation) == errc::not_enough_memory);
}

TEST_CASE("ranks in different calls mismatch, and both are named") {
  ranks all(3);
  call zero(all, 0, 4);
  call one(all, 1, 5);
  const arrival first(zero);
  const arrival second(one);
  all.settle();
  CHECK((first.ended && second.ended));
  CHECK(outcome(first.operation) == errc::mismatch);
  CHECK(outcome(second.operation) == errc::mismatch);
  for (int rank = 0; rank < 3; ++rank) {
    REQUIRE(all[rank].failed());
    const std::string sentence = all[rank].reason().detail;
    CHECK(sentence.find("rank 0 called all_reduce of 4") != std::string::npos);
    CHECK(sentence.find("rank 1 called all_reduce of 5") != std::string::npos);
  }
}

TEST_CASE("a rank in another call with the same number is found, whichever of the two is first") {
  for (const bool arrives_first : {false, true}) {
    CAPTURE(arrives_first);
    ranks all(3);
    // Rank 2 is the rank that rank 0 checks.
    call zero(all, 0, 4);
    std::unique_ptr<arrival> arrives;
    if (arrives_first) arrives = std::make_unique<arrival>(zero);
    call two(all, 2, 5);
    int byte = 0;
    started receive(all, two.net().recv(1, {reinterpret_cast<std::byte*>(&byte), sizeof byte}));
    if (!arrives_first) arrives = std::make_unique<arrival>(zero);
    all.settle();
    CHECK((arrives->ended && receive.ended()));
    CHECK(outcome(arrives->operation) == errc::mismatch);
    CHECK(receive.operation().result() == errc::mismatch);
    for (int rank = 0; rank < 3; ++rank) CHECK(all[rank].reason().code == errc::mismatch);
  }
}

TEST_CASE("a rank that has left is not waited for") {
  for (const bool leaves_first : {false, true}) {
    CAPTURE(leaves_first);
    ranks all(2);
    call zero(all, 0);
    all[0].inactivity = 1000 * seconds;
    std::unique_ptr<arrival> waiting;
    if (!leaves_first) waiting = std::make_unique<arrival>(zero);
    (*all.world())[1].matching().remove(all[1]);
    if (leaves_first) waiting = std::make_unique<arrival>(zero);
    // It was present when it was checked: the sweep checks again after 100 ms.
    if (!leaves_first) {
      (*all.world())[0].matching().sweep(zero.record().started + 101 * milliseconds);
    }
    all.settle();
    CHECK(waiting->ended);
    CHECK(outcome(waiting->operation) == errc::closed);
  }
}

TEST_CASE(
    "a deadline names a rank that has not arrived, but no culprit: that rank has made the call") {
  for (const int late : {0, 1, 2}) {
    CAPTURE(late);
    ranks all(3);
    const calls started_calls = call_all(all);
    arrivals arrived;
    for (int rank = 0; rank < 3; ++rank) {
      if (rank != late)
        arrived.push_back(
            std::make_unique<arrival>(*started_calls[static_cast<std::size_t>(rank)]));
    }
    const int waiting = late == 0 ? 1 : 0;
    operation_record& record = started_calls[static_cast<std::size_t>(waiting)]->record();
    record.deadline = record.started + milliseconds;
    (*all.world())[waiting].matching().sweep(record.deadline);
    all.settle();
    for (const auto& one : arrived) CHECK(outcome(one->operation) == errc::timeout);
    CHECK(all[waiting].reason().waited_for == late);
    CHECK(all[waiting].reason().culprit == -1);
  }
}

TEST_CASE("the missing ranks are ranks of the world, in any order of the communicator") {
  inproc_world world(4);
  const auto members = std::make_shared<const std::vector<int>>(std::vector<int>{3, 1, 2});
  communicator_state state(7, 1, 3, members);
  operation_record record;
  record.communicator = &state;
  record.sequence = 1;
  inproc::completion_barriers all;
  for (int rank = 0; rank < 4; ++rank) all.add_rank(world[rank].matching());
  completion_barrier one(all, world[1].matching(), 0, nullptr, record);
  completion ignored([](completion&) noexcept {}, &world.queue());
  CHECK_FALSE(one.start(ignored));
  CHECK(all.missing_ranks(record) == std::vector<int>{3, 2});
  const operation_record other = record;
  CHECK(all.missing_ranks(other).empty());
}

/// Neither commutes nor associates: any other order or grouping gives another hash.
struct hash_combine {
  std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return mix(mix(1, a), b); }
};
/// Returns the result of recursive_doubling, computed independently.
std::uint64_t doubled(std::vector<std::uint64_t> all) {
  const hash_combine op;
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
using doubling = last_arriver::all_reduce_step<call::channel, any_buffer, any_op,
                                               last_arriver::recursive_doubling_order>;

task<> sum(call& started_call, numbers& in, numbers& out, any_op op) {
  const any_buffer from(in.data(), in.size(), sizeof(std::uint64_t));
  const any_buffer to(out.data(), out.size(), sizeof(std::uint64_t));
  return run_frameless<doubling>(started_call.net(), from, to, op);
}

TEST_CASE("the last arriver computes the sums of recursive_doubling for all ranks") {
  const hash_combine op;
  for (const bool in_place : {false, true}) {
    for (int size = 1; size <= 9; ++size) {
      for (const std::size_t n :
           {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{5000}}) {
        CAPTURE(size);
        CAPTURE(n);
        ranks all(size);
        const calls started_calls = call_all(all);
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
          tasks.push_back(sum(*started_calls[at], in[at], in_place ? in[at] : out[at],
                              erase<std::uint64_t>(op).op));
        }
        sync_wait(*all.world(), when_all(std::move(tasks)));
        for (std::size_t i = 0; i < n; ++i) {
          numbers inputs;
          for (const numbers& each : given) inputs.push_back(each[i]);
          const std::uint64_t want = doubled(inputs);
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

TEST_CASE("a sum that throws ends all ranks, with its message") {
  // It throws for all pairs of the first round, for one of them, or in the second round.
  for (const std::uint64_t limit : {0u, 3u, 8u}) {
    CAPTURE(limit);
    const throwing op{limit};
    ranks all(4);
    const calls started_calls = call_all(all);
    std::vector<numbers> data = {{1}, {2}, {3}, {4}};
    std::vector<std::unique_ptr<started<task<>>>> each;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      each.push_back(std::make_unique<started<task<>>>(
          all, sum(*started_calls[rank], data[rank], data[rank], erase<std::uint64_t>(op).op)));
    }
    all.settle();
    for (std::size_t rank = 0; rank < 4; ++rank) {
      REQUIRE(each[rank]->ended());
      CHECK_THROWS_AS(each[rank]->operation().result(), error);
      const failure& reason = all[static_cast<int>(rank)].reason();
      CHECK(reason.code == errc::user_op_failed);
      CHECK(std::string(reason.detail) == "the reduction threw: cannot add");
    }
  }
}

}  // namespace
