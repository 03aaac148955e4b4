// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc/exchange.hpp>

#include "ranks.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace colls;
using exchange_operation = inproc::exchange_operation;

/// One rank's half, started at once. What is filled in are both halves of an exchange at once.
struct half : completion {
  half(call& of, int with, int gives, int lane = 0, std::size_t size = sizeof(int))
      : completion([](completion& self) noexcept { static_cast<half&>(self).ended = true; },
                   &of.net().net().queue()),
        given(gives),
        operation(of.net().net().exchange({with, of.record().communicator->id(),
                                           of.record().sequence, static_cast<std::uint16_t>(lane)},
                                          {reinterpret_cast<const std::byte*>(&given), size},
                                          reinterpret_cast<std::byte*>(&got), of.record())) {
    ended = operation.start(*this);
    if (!operation.is_second()) return;
    std::memcpy(&got, operation.theirs(), sizeof got);
    std::memcpy(operation.their_place(), &given, sizeof given);
    operation.let_go({});
  }
  std::error_code result() const {
    try {
      operation.result();
    } catch (const error& thrown) {
      return thrown.code();
    }
    return {};
  }

  bool ended = false;
  int given;
  int got = -1;
  exchange_operation operation;
};

TEST_CASE("who comes first waits for the other, and who comes second serves both") {
  for (const int first : {0, 1}) {
    ranks all(2);
    call zero(all, 0);
    call one(all, 1);
    call& early = first == 0 ? zero : one;
    call& late = first == 0 ? one : zero;
    half waits(early, 1 - first, 10);
    all.settle();
    CHECK_FALSE(waits.ended);
    half comes(late, first, 20);
    CHECK(comes.ended);
    CHECK_FALSE(waits.ended);  // its turn comes
    all.settle();
    CHECK(waits.ended);
    CHECK((waits.got == 20 && comes.got == 10));
    CHECK_FALSE(waits.result());
    CHECK_FALSE(comes.result());
    for (call* const of : {&zero, &one}) CHECK(of->record().bytes == 2 * sizeof(int));
  }
}

TEST_CASE("exchanges of other ranks, calls, lanes and communicators stay apart; alike: in order") {
  ranks all(3);
  ranks others(all.world(), 2);
  call zero(all, 0);
  call next(all, 0);
  call apart(others, 0);
  half waiting[] = {{zero, 1, 0},    {zero, 1, 1}, {zero, 2, 2},
                    {zero, 1, 3, 1}, {next, 1, 4}, {apart, 1, 5}};
  call one(all, 1);
  call ones_next(all, 1);
  call ones_apart(others, 1);
  call two(all, 2);
  CHECK(half(ones_apart, 0, 0).got == 5);
  CHECK(half(ones_next, 0, 0).got == 4);
  CHECK(half(one, 0, 0, 1).got == 3);
  CHECK(half(two, 0, 0).got == 2);
  CHECK(half(one, 0, 0).got == 0);
  CHECK(half(one, 0, 0).got == 1);
  CHECK_FALSE(half(one, 0, 0).ended);
  CHECK_FALSE(half(one, 2, 0).ended);
  all.settle();
  for (const half& each : waiting) CHECK((each.ended && each.got == 0));
}

TEST_CASE("who withdraws is not there") {
  ranks all(2);
  call zero(all, 0);
  call one(all, 1);
  for (int gone = 0; gone < 3; ++gone) {
    std::unique_ptr<half> waiting[3];
    for (int i = 0; i < 3; ++i) waiting[i] = std::make_unique<half>(zero, 1, i);
    waiting[gone].reset();
    const int first = gone == 0 ? 1 : 0;
    const int second = gone == 2 ? 1 : 2;
    CHECK(half(one, 0, 0).got == first);
    CHECK(half(one, 0, 0).got == second);
    half waits(one, 0, 0);
    CHECK_FALSE(waits.ended);
    all.settle();
  }
}

TEST_CASE("revoking ends who waits, of that communicator alone") {
  ranks all(2);
  ranks others(all.world(), 2);
  call zero(all, 0);
  call apart(others, 0);
  call one(all, 1);
  half elsewhere(apart, 1, 0);
  half first(zero, 1, 0);
  half second(zero, 1, 0, 1);
  one.net().revoke(failure(errc::user_op_failed));
  all.settle();
  for (const half* waited : {&first, &second}) {
    CHECK(waited->ended);
    CHECK(waited->result() == errc::user_op_failed);
  }
  CHECK_FALSE(elsewhere.ended);
  const half late(zero, 1, 0);
  CHECK(late.ended);
  CHECK(late.result() == errc::user_op_failed);
}

TEST_CASE("halves of different calls or lengths end both, with both named") {
  for (const bool same_call : {false, true}) {
    CAPTURE(same_call);
    ranks all(3);
    call zero(all, 0, 4);
    call one(all, 1, same_call ? 4 : 5);
    const half waits(zero, 1, 0);
    const half comes(one, 0, 0, 0, same_call ? 2 : sizeof(int));
    all.settle();
    CHECK((waits.ended && comes.ended));
    CHECK(waits.result() == errc::mismatch);
    CHECK(comes.result() == errc::mismatch);
    CHECK((waits.got == -1 && comes.got == -1));
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(all[rank].failed());
      const std::string sentence = all[rank].why().detail;
      CHECK(sentence.find(same_call ? "rank 0 sent 4 bytes where rank 1 expects 2"
                                    : "rank 1 called all_reduce of 5") != std::string::npos);
    }
  }
}

TEST_CASE("a rank in another call under the same number is found, whatever it waits for there") {
  for (const bool exchange_first : {false, true}) {
    CAPTURE(exchange_first);
    ranks all(2);
    call zero(all, 0, 4);
    std::unique_ptr<half> waits;
    if (exchange_first) waits = std::make_unique<half>(zero, 1, 0);
    call one(all, 1, 5);
    int byte = 0;
    started other(all, one.net().recv(0, {reinterpret_cast<std::byte*>(&byte), sizeof byte}));
    if (!exchange_first) waits = std::make_unique<half>(zero, 1, 0);
    all.settle();
    CHECK((waits->ended && other.ended()));
    CHECK(waits->result() == errc::mismatch);
    CHECK(other.operation().result() == errc::mismatch);
  }
}

TEST_CASE("a deadline names the rank that has not come") {
  ranks all(3);
  call zero(all, 0);
  const half waits(zero, 2, 0);
  zero.record().deadline = zero.record().started + milliseconds;
  (*all.world())[0].matching().sweep(zero.record().deadline);
  all.settle();
  CHECK(waits.result() == errc::timeout);
  CHECK(all[0].why().waited_for == 2);
  CHECK(all[0].why().culprit == 2);
}

TEST_CASE("who waits for a rank that leaves hears of it") {
  ranks all(2);
  call zero(all, 0);
  const half waits(zero, 1, 0);
  (*all.world())[1].matching().remove(all[1]);
  all[0].inactivity = 1000 * seconds;
  (*all.world())[0].matching().sweep(zero.record().started + 101 * milliseconds);
  all.settle();
  CHECK(waits.ended);
  CHECK(waits.result() == errc::closed);
}

/// Neither commutes nor fits any other order: 10 a + b.
struct digits {
  int operator()(int a, int b) const { return 10 * a + b; }
};
struct throwing {
  int operator()(int, int) const { throw std::runtime_error("cannot add"); }
};

TEST_CASE("sums are made in the order of ranks, for both ranks, in place or apart") {
  for (const int first : {0, 1}) {
    for (const bool in_place : {false, true}) {
      for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
        ranks all(2);
        std::vector<int> mine[] = {std::vector<int>(n, 3), std::vector<int>(n, 4)};
        std::vector<int> apart[] = {std::vector<int>(n), std::vector<int>(n)};
        const digits op;
        const any_op fold = erase<int>(op).op;
        call of[] = {{all, 0}, {all, 1}};
        const auto sum = [&](int rank) -> task<> {
          std::vector<int>& out = (in_place ? mine : apart)[rank];
          co_await of[rank].net().exchange_reduce(1 - rank,
                                                  any_buffer(mine[rank].data(), n, sizeof(int)),
                                                  any_buffer(out.data(), n, sizeof(int)), fold);
        };
        sync_wait(*all.world(), when_all(sum(first), sum(1 - first)));
        for (const auto& out : in_place ? mine : apart) CHECK(out == std::vector<int>(n, 34));
      }
    }
  }
}

TEST_CASE("a sum that throws ends both ranks, with its words") {
  ranks all(2);
  std::vector<int> data[] = {std::vector<int>(1), std::vector<int>(1)};
  const throwing op;
  const any_op fold = erase<int>(op).op;
  call of[] = {{all, 0}, {all, 1}};
  const auto sum = [&](int rank) -> task<> {
    const any_buffer mine(data[rank].data(), 1, sizeof(int));
    co_await of[rank].net().exchange_reduce(1 - rank, mine, mine, fold);
  };
  started zero(all, sum(0));
  started one(all, sum(1));
  all.settle();
  REQUIRE((zero.ended() && one.ended()));
  CHECK_THROWS_AS(zero.operation().result(), error);
  CHECK_THROWS_AS(one.operation().result(), error);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(all[rank].why().code == errc::user_op_failed);
    CHECK(std::string(all[rank].why().detail) == "the reduction threw: cannot add");
  }
}

}  // namespace
