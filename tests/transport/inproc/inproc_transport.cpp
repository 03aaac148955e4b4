// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc/inproc_transport.hpp>

#include "../../support/ranks.hpp"

#include <doctest/doctest.h>

#include <string>

#include "../../support/long_wait.hpp"

namespace {

using namespace colls;

std::vector<int> numbers(int n, int first) {
  std::vector<int> all;
  for (int i = 0; i < n; ++i) all.push_back(first + i);
  return all;
}

TEST_CASE("a message arrives completely, whichever side starts first") {
  for (const int n : {0, 1, 1000, 300'000}) {
    for (const bool sender_first : {true, false}) {
      ranks all(2);
      call zero(all, 0);
      call one(all, 1);
      std::vector<int> from = numbers(n, 5);
      std::vector<int> into(from.size());
      const auto sending = [&]() -> task<> { co_await zero.net().send(1, as_bytes(from)); };
      const auto receiving = [&]() -> task<> { co_await one.net().recv(0, as_bytes(into)); };
      if (sender_first) {
        sync_wait(*all.world(), when_all(sending(), receiving()));
      } else {
        sync_wait(*all.world(), when_all(receiving(), sending()));
      }
      CHECK(into == from);
      CHECK(zero.record().bytes == from.size() * sizeof(int));
      CHECK(one.record().bytes == from.size() * sizeof(int));
    }
  }
}

TEST_CASE("messages of one key arrive in order, of many operations at once") {
  ranks all(2);
  call first_zero(all, 0);
  call first_one(all, 1);
  call second_zero(all, 0);
  call second_one(all, 1);
  std::vector<std::vector<int>> sent;
  std::vector<std::vector<int>> got(4, std::vector<int>(8));
  for (int i = 0; i < 4; ++i) sent.push_back(numbers(8, 100 * i));

  const auto net = first_zero.net();
  started a(all, net.send(1, as_bytes(sent[0])));
  started b(all, net.send(1, as_bytes(sent[1])));
  started lane(all, net.lane(1).send(1, as_bytes(sent[2])));
  started other(all, second_zero.net().send(1, as_bytes(sent[3])));
  started from_other(all, second_one.net().recv(0, as_bytes(got[3])));
  started from_lane(all, first_one.net().lane(1).recv(0, as_bytes(got[2])));
  started from_a(all, first_one.net().recv(0, as_bytes(got[0])));
  CHECK(from_a.ended());
  CHECK_FALSE(b.ended());
  started from_b(all, first_one.net().recv(0, as_bytes(got[1])));
  all.settle();
  CHECK((a.ended() && b.ended() && lane.ended() && other.ended()));
  CHECK(got == sent);
}

/// Checks that the communicator has failed with `code` on both ranks.
void check_both_failed(ranks& all, errc code) {
  for (const int rank : {0, 1}) {
    REQUIRE(all[rank].failed());
    CHECK(all[rank].reason().code == code);
  }
}

TEST_CASE("different calls with one sequence number fail on both sides, and both are named") {
  for (const bool sender_first : {true, false}) {
    CAPTURE(sender_first);
    ranks all(2);
    std::vector<int> from = numbers(4, 0);
    std::vector<int> into(4);
    std::unique_ptr<call> zero;
    std::unique_ptr<call> one;
    using sending = decltype(zero->net().send(1, const_bytes{}))::operation;
    using receiving = decltype(one->net().recv(0, mutable_bytes{}))::operation;
    std::unique_ptr<started<sending>> send;
    std::unique_ptr<started<sending>> second_send;
    std::unique_ptr<started<receiving>> recv;
    const auto send_both = [&] {
      zero = std::make_unique<call>(all, 0, 4);
      send = std::make_unique<started<sending>>(all, zero->net().send(1, as_bytes(from)));
      second_send = std::make_unique<started<sending>>(all, zero->net().send(1, as_bytes(from)));
    };
    const auto receive = [&] {
      one = std::make_unique<call>(all, 1, 5);
      recv = std::make_unique<started<receiving>>(all, one->net().recv(0, as_bytes(into)));
    };
    if (sender_first) {
      send_both();
      receive();
    } else {
      receive();
      send_both();
    }
    all.settle();
    check_both_failed(all, errc::mismatch);
    const std::string message = all[0].reason().detail;
    CHECK(message.find("rank 0 called all_reduce of 4") != std::string::npos);
    CHECK(message.find("rank 1 called all_reduce of 5") != std::string::npos);
    CHECK((send->ended() && second_send->ended() && recv->ended()));
    CHECK(send->operation().result());
    CHECK(second_send->operation().result());
    CHECK(recv->operation().result() == errc::mismatch);
    CHECK(into == std::vector<int>(4));

    // Other communicators are not affected.
    ranks others(all.world(), 2);
    call good_zero(others, 0);
    call good_one(others, 1);
    sync_wait(*all.world(), when_all(good_zero.net().send(1, as_bytes(from)),
                                     good_one.net().recv(0, as_bytes(into))));
    CHECK(into == from);
  }
}

TEST_CASE("different lengths fail on both sides and leave other messages alone") {
  for (const bool sender_first : {true, false}) {
    CAPTURE(sender_first);
    ranks all(2);
    ranks others(all.world(), 2);
    std::vector<int> from = numbers(4, 0);
    std::vector<int> into(5);
    std::vector<int> elsewhere(4);
    // Messages of another communicator that wait in the same table while this communicator ends.
    call waiting_zero(others, 0);
    call waiting_one(others, 1);
    using one_send = decltype(waiting_zero.net().send(1, const_bytes{}))::operation;
    std::vector<std::unique_ptr<started<one_send>>> waiting;
    for (int lane = 0; lane < 40; ++lane) {
      waiting.push_back(std::make_unique<started<one_send>>(
          all, waiting_zero.net().lane(lane).send(1, as_bytes(from))));
    }
    call zero(all, 0);
    call one(all, 1);
    const auto sending = [&]() -> task<> { co_await zero.net().send(1, as_bytes(from)); };
    const auto receiving = [&]() -> task<> { co_await one.net().recv(0, as_bytes(into)); };
    if (sender_first) {
      CHECK_THROWS_AS(sync_wait(*all.world(), when_all(sending(), receiving())), error);
    } else {
      CHECK_THROWS_AS(sync_wait(*all.world(), when_all(receiving(), sending())), error);
    }
    check_both_failed(all, errc::mismatch);
    CHECK(std::string(all[0].reason().detail) == "rank 0 sent 16 bytes where rank 1 expects 20");
    CHECK(into == std::vector<int>(5));

    for (int lane = 0; lane < 40; ++lane) {
      CHECK_FALSE(waiting[static_cast<std::size_t>(lane)]->ended());
      elsewhere.assign(4, 0);
      sync_wait(*all.world(), waiting_one.net().lane(lane).recv(0, as_bytes(elsewhere)));
      CHECK(elsewhere == from);
    }
  }
}

TEST_CASE("revoking ends all operations of a communicator on all ranks") {
  ranks all(3);
  call zero(all, 0);
  call one(all, 1);
  std::vector<int> data(4);
  std::vector<int> other(4);
  const auto waits = [&]() -> task<> {
    co_await when_all(zero.net().recv(1, as_bytes(data)), zero.net().send(2, as_bytes(other)));
  };
  const auto waits_too = [&]() -> task<> { co_await one.net().recv(2, as_bytes(other)); };
  started first(all, waits());
  started second(all, waits_too());
  all.settle();
  CHECK_FALSE(first.ended());
  one.net().revoke(failure(errc::user_op_failed));
  all.settle();
  REQUIRE(first.ended());
  REQUIRE(second.ended());
  CHECK_THROWS_AS(first.operation().result(), error);
  CHECK_THROWS_AS(second.operation().result(), error);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(all[rank].reason().code == errc::user_op_failed);
    CHECK(all[rank].reason().culprit == 1);
  }
  // An operation that starts after the revocation ends at once.
  started late(all, zero.net().send(1, as_bytes(data)));
  CHECK(late.ended());
  CHECK(late.operation().result() == errc::user_op_failed);
}

TEST_CASE("an operation that is destroyed unfinished is withdrawn") {
  ranks all(2);
  call zero(all, 0);
  call one(all, 1);
  std::vector<int> from = numbers(4, 7);
  std::vector<int> into(4);
  {
    const auto exchange = [](call& here, int peer, std::vector<int> out) -> task<> {
      std::vector<int> in(4);
      co_await when_all(here.net().send(peer, as_bytes(out)), here.net().recv(peer, as_bytes(in)));
    };
    started dropped(all, exchange(zero, 1, numbers(4, 1)));
    all.settle();
    CHECK_FALSE(dropped.ended());
  }
  // Neither the message nor the receive of the dropped operation matches any more.
  sync_wait(*all.world(),
            when_all(zero.net().send(1, as_bytes(from)), one.net().recv(0, as_bytes(into))));
  CHECK(into == from);
  into.assign(4, 0);
  sync_wait(*all.world(),
            when_all(one.net().send(0, as_bytes(from)), zero.net().recv(1, as_bytes(into))));
  CHECK(into == from);
}

TEST_CASE("point to point: sends are buffered up to the window, then wait") {
  ranks all(2);
  direct zero(all, 0);
  direct one(all, 1);
  static_assert(colls::eager_window == 4 * colls::eager_limit);
  std::vector<int> from = numbers(colls::eager_limit / sizeof(int), 0);
  std::vector<int> into(from.size());
  for (int i = 0; i < 4; ++i) {
    started sent(all, zero.send(1, 3, as_bytes(from)));
    CHECK(sent.ended());
    from[0] = i + 1;  // the buffer may be reused
  }
  {
    started fifth(all, zero.send(1, 3, as_bytes(from)));
    CHECK_FALSE(fifth.ended());
    for (int i = 0; i < 5; ++i) {
      sync_wait(*all.world(), one.recv(0, 3, as_bytes(into)));
      CHECK(into[0] == i);
    }
    all.settle();
    CHECK(fifth.ended());
  }
  // A buffered message that no receive matches is dropped when the communicator ends.
  started unread(all, zero.send(1, 3, as_bytes(from)));
  CHECK(unread.ended());
}

TEST_CASE("point to point: any_source receives messages in the order of their arrival") {
  ranks all(4);
  direct root(all, 0);
  std::vector<int> got(8);
  std::vector<std::unique_ptr<direct>> senders;
  for (const int rank : {2, 3, 1}) {
    senders.push_back(std::make_unique<direct>(all, rank));
    std::vector<int> from = numbers(rank, 10 * rank);
    sync_wait(*all.world(), senders.back()->send(0, 9, as_bytes(from)));
  }
  for (const int rank : {2, 3, 1}) {
    started arrived(all, root.recv(posted_receive::any_source, 9, as_bytes(got)));
    REQUIRE(arrived.ended());
    CHECK_FALSE(arrived.operation().result());
    CHECK(arrived.operation().source_rank() == rank);
    CHECK(arrived.operation().count() == static_cast<std::size_t>(rank) * sizeof(int));
    CHECK(got[0] == 10 * rank);
  }
}

TEST_CASE("point to point: a message that is too long is truncated, and nothing else breaks") {
  for (const bool sender_first : {true, false}) {
    for (const int n : {5, 100'000}) {
      ranks all(2);
      direct zero(all, 0);
      direct one(all, 1);
      std::vector<int> from = numbers(n, 0);
      std::vector<int> into(4, -1);
      std::unique_ptr<started<decltype(zero.send(1, 0, {}))>> send;
      const auto start_send = [&] {
        send = std::make_unique<started<decltype(zero.send(1, 0, {}))>>(
            all, zero.send(1, 2, as_bytes(from)));
      };
      if (sender_first) start_send();
      started recv(all, one.recv(0, 2, as_bytes(into)));
      if (!sender_first) start_send();
      all.settle();
      REQUIRE(recv.ended());
      CHECK(recv.operation().result() == errc::truncated);
      CHECK(recv.operation().source_rank() == 0);
      CHECK(into == std::vector<int>(4, -1));
      REQUIRE(send->ended());
      CHECK_FALSE(send->operation().result());
      CHECK_FALSE(all[0].failed());
      CHECK_FALSE(all[1].failed());
    }
  }
}

TEST_CASE("a message that never arrives is a timeout that names the awaited rank") {
  ranks all(2);
  call zero(all, 0);
  zero.record().deadline = zero.record().started + 20 * milliseconds;
  std::vector<int> into(4);
  CHECK_THROWS_AS(sync_wait(*all.world(), zero.net().recv(1, as_bytes(into))), error);
  check_both_failed(all, errc::timeout);
  CHECK(all[1].reason().waited_for == 1);
}

TEST_CASE("a thread that waits for a device stays awake") {
  inproc_world world(2);
  CHECK(sleeps_in_a_long_wait(world) < 500);
}

}  // namespace
