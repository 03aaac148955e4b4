// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/inproc/exchange.hpp>

#include "ranks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace colls;
using exchange_operation = inproc::exchange_operation;

/// One rank's exchange with another one, started at once: both get what the other gives.
struct half final : completion, exchange_operation {
  half(call& of, int with, int gives, int lane = 0, std::size_t size = sizeof(int))
      : completion([](completion& self) noexcept { static_cast<half&>(self).ended = true; },
                   &of.net().net().queue()),
        exchange_operation(of.net().net().exchanges(), of.net().net().rank(),
                           static_cast<std::uint16_t>(lane), 1,
                           {reinterpret_cast<std::byte*>(&value), size}, of.record()),
        with_(with),
        value(gives) {
    ended = start(*this);
  }

 private:
  int partner(int) const override { return with_; }
  bool join(int, std::byte* theirs) noexcept override {
    std::swap_ranges(theirs, theirs + sizeof value, reinterpret_cast<std::byte*>(&value));
    return true;
  }

  int with_;

 public:
  int value;
  bool ended = false;
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
    CHECK((waits.value == 20 && comes.value == 10));
    CHECK_FALSE(outcome(waits));
    CHECK_FALSE(outcome(comes));
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
  CHECK(half(ones_apart, 0, 0).value == 5);
  CHECK(half(ones_next, 0, 0).value == 4);
  CHECK(half(one, 0, 0, 1).value == 3);
  CHECK(half(two, 0, 0).value == 2);
  CHECK(half(one, 0, 0).value == 0);
  CHECK(half(one, 0, 0).value == 1);
  CHECK_FALSE(half(one, 0, 0).ended);
  CHECK_FALSE(half(one, 2, 0).ended);
  all.settle();
  for (const half& each : waiting) CHECK((each.ended && each.value == 0));
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
    CHECK(half(one, 0, 0).value == first);
    CHECK(half(one, 0, 0).value == second);
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
    CHECK(outcome(*waited) == errc::user_op_failed);
  }
  CHECK_FALSE(elsewhere.ended);
  const half late(zero, 1, 0);
  CHECK(late.ended);
  CHECK(outcome(late) == errc::user_op_failed);
}

TEST_CASE("halves of different calls or lengths end both, with both named") {
  for (const bool same_call : {false, true}) {
    CAPTURE(same_call);
    ranks all(3);
    call zero(all, 0, 4);
    call one(all, 1, same_call ? 4 : 5);
    const half waits(zero, 1, 7);
    const half comes(one, 0, 8, 0, same_call ? 2 : sizeof(int));
    all.settle();
    CHECK((waits.ended && comes.ended));
    CHECK(outcome(waits) == errc::mismatch);
    CHECK(outcome(comes) == errc::mismatch);
    CHECK((waits.value == 7 && comes.value == 8));
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
    CHECK(outcome(*waits) == errc::mismatch);
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
  CHECK(outcome(waits) == errc::timeout);
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
  CHECK(outcome(waits) == errc::closed);
}

/// Neither commutes nor fits any other order: 10 a + b.
struct digits {
  int operator()(int a, int b) const { return 10 * a + b; }
};
/// The one exchange of two ranks.
struct between_two {
  explicit between_two(int rank) : other(1 - rank) {}
  int partner(int) const { return other; }
  bool is_partner_lower(int) const { return other == 0; }
  int other;
  int rounds = 1;
};

TEST_CASE("sums are made in the order of ranks, for both ranks, in place") {
  for (const int first : {0, 1}) {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{5000}}) {
      ranks all(2);
      std::vector<int> data[] = {std::vector<int>(n, 3), std::vector<int>(n, 4)};
      const digits op;
      const any_op fold = erase<int>(op).op;
      call of[] = {{all, 0}, {all, 1}};
      const auto sum = [&](int rank) -> task<> {
        const between_two round(rank);
        const any_buffer mine(data[rank].data(), n, sizeof(int));
        const auto net = of[rank].net();
        auto exchange = net.exchange_reduce(round, mine, fold);
        co_await exchange;
      };
      sync_wait(*all.world(), when_all(sum(first), sum(1 - first)));
      for (const auto& found : data) CHECK(found == std::vector<int>(n, 34));
    }
  }
}

/// Four ranks in two rounds.
struct four {
  explicit four(const any_op& op) : op_(op) {}

  task<> sum(int rank) {
    const pattern::hypercube cube(rank, 4);
    const any_buffer mine(&value[rank], 1, sizeof(int));
    const auto net = of[rank].net();
    auto exchanges = net.exchange_reduce(cube, mine, op_);
    co_await exchanges;
  }

  any_op op_;
  ranks all{4};
  call of[4] = {{all, 0}, {all, 1}, {all, 2}, {all, 3}};
  int value[4] = {1, 2, 3, 4};
};

TEST_CASE("the last to come does what is left of all rounds") {
  const digits op;
  for (int last = 0; last < 4; ++last) {
    four ranks(erase<int>(op).op);
    std::unique_ptr<started<task<>>> others[4];
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == last) continue;
      others[rank] = std::make_unique<started<task<>>>(ranks.all, ranks.sum(rank));
      CHECK_FALSE(others[rank]->ended());
    }
    const started comes(ranks.all, ranks.sum(last));
    CHECK(comes.ended());
    for (const int value : ranks.value) CHECK(value == 10 * 12 + 34);
    ranks.all.settle();
    for (int rank = 0; rank < 4; ++rank) {
      CHECK((rank == last || others[rank]->ended()));
      CHECK(ranks.of[rank].record().bytes == 4 * sizeof(int));
    }
  }
}

TEST_CASE("who goes away between two rounds is not there in the second") {
  const digits op;
  four ranks(erase<int>(op).op);
  const started first(ranks.all, ranks.sum(0));
  {
    const started gone(ranks.all, ranks.sum(1));
    CHECK(ranks.value[1] == 12);
  }
  const started second(ranks.all, ranks.sum(2));
  const started third(ranks.all, ranks.sum(3));
  ranks.all.settle();
  CHECK((first.ended() && second.ended()));
  CHECK_FALSE(third.ended());
}

struct throwing {
  int operator()(int a, int b) const {
    if (a + b > limit) throw std::runtime_error("cannot add");
    return a + b;
  }
  int limit;
};

TEST_CASE("a sum that throws ends all ranks, with its words") {
  for (const int limit : {0, 3, 8}) {  // in the first round, in one pair of it, in the second
    CAPTURE(limit);
    const throwing op{limit};
    four ranks(erase<int>(op).op);
    std::unique_ptr<started<task<>>> each[4];
    for (int rank = 0; rank < 4; ++rank) {
      each[rank] = std::make_unique<started<task<>>>(ranks.all, ranks.sum(rank));
    }
    ranks.all.settle();
    for (int rank = 0; rank < 4; ++rank) {
      REQUIRE(each[rank]->ended());
      CHECK_THROWS_AS(each[rank]->operation().result(), error);
      CHECK(ranks.all[rank].why().code == errc::user_op_failed);
      CHECK(std::string(ranks.all[rank].why().detail) == "the reduction threw: cannot add");
    }
  }
}

}  // namespace
