// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/channel/channel.hpp>

#include "../support/ranks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

namespace {

using namespace colls;

/// The same ranks on a transport that cannot consume a message in place.
class copying {
 public:
  static constexpr bool consumes = false;

  explicit copying(inproc_transport& net) : net_(net) {}
  int rank() const { return net_.rank(); }
  int size() const { return net_.size(); }
  auto send(const message_key& key, const_bytes data, operation_record& record) {
    return net_.send(key, data, record);
  }
  auto recv(const message_key& key, mutable_bytes data, operation_record& record) {
    return net_.recv(key, data, record);
  }
  time_point now() const { return net_.now(); }
  tag_matcher& matching() { return net_.matching(); }
  run_queue& queue() { return net_.queue(); }
  void wake_driver() {}
  inproc_world& driver() { return net_.driver(); }
  int node_of(int rank) const { return net_.node_of(rank); }
  task<> close(time_point deadline) { return net_.close(deadline); }

 private:
  inproc_transport& net_;
};
static_assert(transport<copying> && !consuming_transport<copying>);

any_buffer erased(std::vector<int>& data) { return {data.data(), data.size(), sizeof(int)}; }

/// 10 a + b: neither commutative nor associative.
struct digits {
  int operator()(int a, int b) const { return 10 * a + b; }
};

/// Reduces the message of `other` with `mine` into `out`.
template <channel Channel>
void receive_and_reduce(ranks& all, Channel here, call& other, std::vector<int>& mine,
                        std::vector<int>& out, std::vector<int>& theirs, incoming side) {
  const digits op;
  const any_op fold = erase<int>(op).op;
  const auto reducing = [&]() -> task<> {
    co_await here.recv_reduce(1, erased(mine), erased(out), fold, side);
  };
  const auto sending = [&]() -> task<> { co_await other.net().send(0, as_bytes(theirs)); };
  sync_wait(*all.world(), when_all(reducing(), sending()));
}

TEST_CASE("recv_reduce puts the incoming data on the given side, fused or staged") {
  for (const bool fused : {true, false}) {
    for (const incoming side : {incoming::left, incoming::right}) {
      for (const bool in_place : {true, false}) {
        for (const std::size_t n : {std::size_t{0}, std::size_t{3}, std::size_t{5000}}) {
          ranks all(2);
          call zero(all, 0);
          call one(all, 1);
          copying slow((*all.world())[0]);
          std::vector<int> mine(n, 3);
          std::vector<int> out(n, -1);
          std::vector<int> theirs(n, 4);
          std::vector<int>& result = in_place ? mine : out;
          if (fused) {
            receive_and_reduce(all, zero.net(), one, mine, result, theirs, side);
          } else {
            receive_and_reduce(all, basic_channel(slow, zero.record()), one, mine, result, theirs,
                               side);
          }
          CHECK(result == std::vector<int>(n, side == incoming::left ? 43 : 34));
          if (!in_place) CHECK(mine == std::vector<int>(n, 3));
          CHECK(theirs == std::vector<int>(n, 4));
        }
      }
    }
  }
}

struct throwing {
  int operator()(int, int) const { throw std::runtime_error("cannot add"); }
};

TEST_CASE("a reduction that throws ends concurrent operations on all ranks, with its message") {
  for (const bool fused : {true, false}) {
    for (const bool sender_first : {true, false}) {
      CAPTURE(fused);
      CAPTURE(sender_first);
      ranks all(3);
      call zero(all, 0);
      call one(all, 1);
      copying slow((*all.world())[0]);
      const throwing op;
      const any_op fold = erase<int>(op).op;
      std::vector<int> mine(4);
      std::vector<int> theirs(4);
      std::vector<int> never(4);
      const auto reducing = [&]() -> task<> {
        const auto receiving = [&] { return zero.net().recv(2, as_bytes(never)); };
        if (fused) {
          co_await when_all(receiving(),
                            zero.net().recv_reduce(1, erased(mine), erased(mine), fold, {}));
        } else {
          const basic_channel net(slow, zero.record());
          co_await when_all(receiving(), net.recv_reduce(1, erased(mine), erased(mine), fold, {}));
        }
      };
      const auto sending = [&]() -> task<> { co_await one.net().send(0, as_bytes(theirs)); };
      std::unique_ptr<started<task<>>> sent;
      if (sender_first) sent = std::make_unique<started<task<>>>(all, sending());
      started reduced(all, reducing());
      if (!sender_first) sent = std::make_unique<started<task<>>>(all, sending());
      all.settle();
      REQUIRE(sent->ended());
      REQUIRE(reduced.ended());
      CHECK_THROWS_AS(reduced.operation().result(), error);
      for (int rank = 0; rank < 3; ++rank) {
        CHECK(all[rank].reason().code == errc::user_op_failed);
        CHECK(all[rank].reason().culprit == 0);
        CHECK(std::string(all[rank].reason().detail) == "the reduction threw: cannot add");
      }
    }
  }
}

TEST_CASE("messages of different lanes never match") {
  ranks all(2);
  call zero(all, 0);
  call one(all, 1);
  std::vector<int> first = {1};
  std::vector<int> second = {2};
  std::vector<int> got = {0};
  started in_none(all, zero.net().send(1, as_bytes(first)));
  started in_two(all, zero.net().lane(2).send(1, as_bytes(second)));
  started from_none(all, one.net().lane(1).lane(1).recv(0, as_bytes(got)));
  CHECK(from_none.ended());
  CHECK(got[0] == 2);
  started other(all, one.net().recv(0, as_bytes(got)));
  CHECK(other.ended());
  CHECK(got[0] == 1);
  all.settle();
}

TEST_CASE("a subset numbers its ranks from 0, also a subset of a subset") {
  ranks all(8);
  std::vector<std::unique_ptr<call>> calls;
  for (int rank = 0; rank < 8; ++rank) calls.push_back(std::make_unique<call>(all, rank));
  const auto last_two = [&](int rank) {  // of the ranks 1 3 5 7
    const auto odd = calls[static_cast<std::size_t>(rank)]->net().subset(1, 2, 4, 1);
    CHECK(odd.rank() == rank / 2);
    CHECK(odd.size() == 4);
    return odd.subset(2, 1, 2, 1);
  };
  CHECK(last_two(5).rank() == 0);
  CHECK(last_two(7).rank() == 1);
  CHECK(last_two(7).size() == 2);
  std::vector<int> sent = {5};
  std::vector<int> got = {0};
  sync_wait(*all.world(),
            when_all(last_two(5).send(1, as_bytes(sent)), last_two(7).recv(0, as_bytes(got))));
  CHECK(got[0] == 5);
}

TEST_CASE("a chunk is cut into as many segments as it takes, none longer than requested") {
  ranks all(1);
  call only(all, 0);
  CHECK(only.net().segments(1'000'000) == 1);
  only.record().segment = 100;
  only.record().lanes = 3;
  CHECK(only.net().width() == 3);
  CHECK(only.net().segments(0) == 1);
  CHECK(only.net().segments(100) == 1);
  CHECK(only.net().segments(101) == 2);
  CHECK(only.net().segments(1000) == 10);
  only.record().segment = 1;
  CHECK(only.net().segments(std::size_t{1} << 33) == INT_MAX);
  only.record().segment = SIZE_MAX;
  CHECK(only.net().segments(SIZE_MAX) == 1);
}

TEST_CASE("lane k takes segments k, k + width, ..., one after another") {
  struct one_step {
    bool start(completion& done) {
      done.post();
      return false;
    }
    void result() {}
  };
  ranks all(1);
  call only(all, 0);
  for (const int width : {1, 3, 20}) {
    for (const int segments : {0, 1, 2, 3, 7}) {
      std::vector<int> order;
      int running = 0;
      int max_running = 0;
      const auto piece = [&](call::channel, int k) -> task<> {
        order.push_back(k);
        max_running = std::max(max_running, ++running);
        co_await one_step{};
        --running;
      };
      sync_wait(*all.world(), run_in_lanes(only.net(), width, segments, piece));
      const int pieces = std::max(segments, 1);
      std::vector<int> expected;
      for (int k = 0; k < pieces; ++k) expected.push_back(k);
      CHECK(order == expected);
      CHECK(max_running == std::min(width, pieces));
    }
  }
}

TEST_CASE("each scratch has separate memory, small or large, aligned for every type") {
  ranks all(1);
  call only(all, 0);
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{8}, std::size_t{16}, std::size_t{17}, std::size_t{100'000}}) {
    std::vector<int> like(n);
    const scratch one = only.net().scratch_like(erased(like), n);
    const scratch two = only.net().scratch_like(erased(like), n);
    CHECK(one.all().size == n * sizeof(int));
    if (n == 0) continue;
    CHECK(one.data() != two.data());
    CHECK(reinterpret_cast<std::uintptr_t>(one.data()) % alignof(std::max_align_t) == 0);
    std::memset(one.data(), 1, one.all().size);
    std::memset(two.data(), 2, two.all().size);
    CHECK(one.data()[n * sizeof(int) - 1] == std::byte{1});
  }
}

#if !defined(COLLS_DETAIL_ADDRESS_SANITIZER)
TEST_CASE("scratch that cannot be allocated revokes before it throws") {
  ranks all(2);
  call zero(all, 0);
  const any_buffer bytes_like(nullptr, 0, 1);
  CHECK_THROWS_AS((void)zero.net().scratch_like(bytes_like, SIZE_MAX / 2), error);
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(all[rank].reason().code == errc::not_enough_memory);
    CHECK(all[rank].reason().culprit == 0);
  }
}
#endif

TEST_CASE("copy moves bytes, and nothing onto itself") {
  ranks all(1);
  call only(all, 0);
  std::vector<int> from = {1, 2, 3};
  std::vector<int> to(3);
  only.net().copy(as_bytes(to), as_bytes(from));
  CHECK(to == from);
  only.net().copy(as_bytes(to), as_bytes(to));
  CHECK(to == from);
  only.net().copy({}, {});
}

}  // namespace
