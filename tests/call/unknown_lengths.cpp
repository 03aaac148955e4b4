// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>
#include <colls/simulated.hpp>
#include <colls/world.hpp>

#include "../support/communicators.hpp"
#include "../support/driven_threads.hpp"
#include "../support/inproc_ranks.hpp"
#include "../support/lack_of_memory.hpp"
#include "../support/tcp_world.hpp"
#include "../transport/suite.hpp"

#include <algorithm>
#include <string>

// Calls in which no rank knows the lengths of the others.

namespace {

using colls::errc;
using colls::gathered;

struct point {
  int x, y, z;
  friend bool operator==(const point&, const point&) = default;
};

/// The elements that rank `from` has for rank `to`.
template <class T>
std::vector<T> elements(int from, int to, std::size_t length) {
  std::vector<T> made(length);
  for (std::size_t i = 0; i < length; ++i) {
    const int value = 1000 * from + 100 * to + static_cast<int>(i % 97);
    if constexpr (std::is_same_v<T, point>) {
      made[i] = {value, from, to};
    } else {
      made[i] = static_cast<T>(value);
    }
  }
  return made;
}

/// The lengths of what rank `from` has for rank `to`, of which some are 0.
struct lengths {
  std::size_t unit;
  std::size_t operator()(int from, int to) const {
    return unit * static_cast<std::size_t>((from * 3 + to * 2 + 1) % 4);
  }
};

template <class T, class World>
void results_are_those_of_a_loop(int size, lengths length_of, const colls::options& opts = {}) {
  CAPTURE(size);
  CAPTURE(length_of.unit);
  transport_suite::ranks<World> all(size);
  const int root = size / 2;
  std::vector<std::vector<T>> own;
  std::vector<std::vector<std::vector<T>>> lists;
  std::vector<T> everything;
  for (int from = 0; from < size; ++from) {
    own.push_back(elements<T>(from, 0, length_of(from, 0)));
    everything.insert(everything.end(), own.back().begin(), own.back().end());
    lists.emplace_back();
    for (int to = 0; to < size; ++to) {
      lists.back().push_back(elements<T>(from, to, length_of(from, to)));
    }
  }
  const auto index = [](auto& comm) { return static_cast<std::size_t>(comm.rank()); };
  const auto expect = [&](const gathered<T>& got, const auto& block_of) {
    REQUIRE(got.offsets.size() == static_cast<std::size_t>(size) + 1);
    CHECK(got.offsets.front() == 0);
    CHECK(got.offsets.back() == got.values.size());
    for (int rank = 0; rank < size; ++rank) {
      const std::span<const T> block = got.block(rank);
      const std::vector<T>& expected = block_of(static_cast<std::size_t>(rank));
      CHECK(std::equal(block.begin(), block.end(), expected.begin(), expected.end()));
    }
  };
  const auto own_of = [&](std::size_t rank) -> const std::vector<T>& { return own[rank]; };
  for (auto& call :
       all.start_all([&](auto& comm) { return comm.all_gather_v(own[index(comm)], opts); })) {
    expect(colls::sync_wait(all.world, call), own_of);
  }
  int rank = 0;
  for (auto& call :
       all.start_all([&](auto& comm) { return comm.gather_v(own[index(comm)], root, opts); })) {
    const gathered<T> got = colls::sync_wait(all.world, call);
    if (rank++ == root) {
      expect(got, own_of);
    } else {
      CHECK(got.values.empty());
      CHECK(got.offsets == std::vector<std::size_t>(static_cast<std::size_t>(size) + 1));
    }
  }
  rank = 0;
  for (auto& call : all.start_all([&](auto& comm) {
         return comm.rank() == root ? comm.scatter_v(lists[index(comm)], root, opts)
                                    : comm.template scatter_v<T>(colls::none, root, opts);
       })) {
    CHECK(colls::sync_wait(all.world, call) ==
          lists[static_cast<std::size_t>(root)][static_cast<std::size_t>(rank++)]);
  }
  std::size_t to = 0;
  for (auto& call :
       all.start_all([&](auto& comm) { return comm.all_to_all_v(lists[index(comm)], opts); })) {
    expect(colls::sync_wait(all.world, call),
           [&](std::size_t from) -> const std::vector<T>& { return lists[from][to]; });
    ++to;
  }
}

TEST_CASE("the results are those of a loop over the ranks") {
  for (const int size : {1, 2, 3, 4, 5, 8, 9}) {
    for (const std::size_t unit : {std::size_t{0}, std::size_t{1}, std::size_t{50'000}}) {
      results_are_those_of_a_loop<int, inproc_ranks>(size, {unit});
    }
    results_are_those_of_a_loop<point, inproc_ranks>(size, {7});
  }
  for (const std::size_t unit : {std::size_t{1}, std::size_t{50'000}}) {
    for (const int size : {2, 3, 5}) {
      results_are_those_of_a_loop<short, driven_threads>(size, {unit});
      results_are_those_of_a_loop<double, tcp_world>(size, {unit});
      results_are_those_of_a_loop<char, shm_world>(size, {unit});
    }
  }
}

TEST_CASE("calls of unknown lengths repeat, overlap and mix with other calls") {
  transport_suite::ranks<shm_world> all(3);
  std::vector<std::vector<int>> own;
  for (int rank = 0; rank < 3; ++rank)
    own.push_back(elements<int>(rank, 0, static_cast<std::size_t>(10 * rank + 1)));
  std::vector<int> sums[3] = {{1}, {1}, {1}};
  for (int round = 0; round < 20; ++round) {
    std::vector<colls::operation<gathered<int>>> first, second;
    std::vector<colls::operation<>> reductions;
    for (int rank = 0; rank < 3; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      first.push_back(all[rank].all_gather_v(own[i]));
      reductions.push_back(all[rank].all_reduce(sums[i]));
      second.push_back(all[rank].all_gather_v(std::span(own[i]).first(1)));
    }
    for (auto& call : second) CHECK(colls::sync_wait(all.world, call).values.size() == 3);
    for (auto& call : reductions) CHECK(all.outcome(call).code == errc{});
    for (auto& call : first) CHECK(colls::sync_wait(all.world, call).values.size() == 33);
    for (auto& sum : sums) sum[0] = 1;
  }
}

template <class Call>
void expect_refused(communicators& all, Call call) {
  CHECK(failure_of(all, call).code == errc::invalid_argument);
}

TEST_CASE("wrong arguments are refused on the caller, and the communicator stays good") {
  communicators all(3);
  const std::vector<int> data(3);
  std::vector<std::vector<int>> list(2);
  expect_refused(all, all[0].gather_v(data, 3));
  expect_refused(all, all[0].gather_v(data, -1));
  expect_refused(all, all[0].scatter_v(list, 0));
  expect_refused(all, all[0].scatter_v<int>(colls::none, 0));
  expect_refused(all, all[1].scatter_v<int>(colls::none, 7));
  expect_refused(all, all[0].all_to_all_v(list));
  expect_refused(all, all[0].all_gather_v(std::span(data.data(), SIZE_MAX / 2)));
  auto pinned = all[0].all_gather_v(data, {.algorithm = colls::algorithm::binomial_tree});
  CHECK(failure_of(all, pinned).code == errc::not_applicable);
  std::vector<std::span<const int>> huge(3, std::span(data.data(), PTRDIFF_MAX / 8));
  expect_refused(all, all[0].all_to_all_v(huge));
  const char byte = 0;
  std::vector<std::span<const char>> bytes(3, std::span(&byte, PTRDIFF_MAX / 2));
  expect_refused(all, all[0].scatter_v(bytes, 0));
  all.check_good();
}

TEST_CASE("an algorithm can be pinned") {
  for (const colls::algorithm pinned : {colls::algorithm::ring, colls::algorithm::bruck}) {
    transport_suite::ranks<tcp_world> all(3);
    std::vector<std::vector<int>> own;
    for (int rank = 0; rank < 3; ++rank)
      own.push_back(elements<int>(rank, 0, static_cast<std::size_t>(2 + rank)));
    for (auto& call : all.start_all([&](auto& comm) {
           return comm.all_gather_v(own[static_cast<std::size_t>(comm.rank())],
                                    {.algorithm = pinned});
         })) {
      CHECK(colls::sync_wait(all.world, call).values.size() == 9);
    }
  }
}

template <class First, class Others>
void expect_mismatch(const First& first, const Others& others) {
  transport_suite::ranks<tcp_world> all(3);
  auto of_first = first(all[0]);
  std::vector<decltype(others(all[1]))> of_others;
  for (int rank = 1; rank < 3; ++rank) of_others.push_back(others(all[rank]));
  CHECK(all.outcome(of_first).code == errc::mismatch);
  for (auto& call : of_others) CHECK(all.outcome(call).code == errc::mismatch);
  all.expect_spares_work(3);
}

TEST_CASE("ranks that make another call, or pass another type, get a mismatch") {
  const std::vector<int> ints(2);
  const std::vector<float> floats(2);
  std::vector<int> out(6);
  const std::vector<int> counts(3, 2);
  const auto gather = [&](auto& comm) { return comm.all_gather_v(ints); };
  expect_mismatch([&](auto& comm) { return comm.all_gather_v(floats); }, gather);
  expect_mismatch([&](auto& comm) { return comm.all_gather_v(ints, out, counts); }, gather);
  expect_mismatch([&](auto& comm) { return comm.all_gather(ints, out); }, gather);
  expect_mismatch([&](auto& comm) { return comm.barrier(); }, gather);
}

TEST_CASE("a dropped call ends the call of all ranks, as does one whose rank has left") {
  transport_suite::ranks<tcp_world> all(3);
  const std::vector<int> data(100'000);
  {
    auto dropped = all[2].all_gather_v(data);
  }
  for (int rank = 0; rank < 2; ++rank) {
    auto waits = all[rank].all_gather_v(data);
    CHECK(all.outcome(waits).code == errc::cancelled);
  }
  auto closing = all.spare(2).close();
  CHECK(all.outcome(closing).code == errc{});
  for (int rank = 0; rank < 2; ++rank) {
    auto waits = all.spare(rank).all_gather_v(data);
    CHECK(all.outcome(waits).code == errc::closed);
  }
}

TEST_CASE("lengths that peers send are checked before anything is allocated") {
  // Rank 1 makes the call with a length that adds up with the others to more than memory.
  for (const std::uint64_t length : {std::uint64_t{PTRDIFF_MAX} / 4, UINT64_MAX - 1}) {
    communicators all(2);
    const std::vector<int> data(3);
    auto call = all[0].all_gather_v(data);
    const colls::operation_record& record = call.underlying_call();
    std::uint64_t lengths[2] = {};
    // The exchange of lengths between two ranks is a message in each direction.
    colls::operation_record forged;
    forged.communicator = &all[1].underlying_core().state();
    forged.sequence = record.sequence;
    forged.hash = record.hash;
    auto& net = all[1].net();
    const colls::message_key key{0, 0, record.sequence, 0};
    auto send = net.send(key, {reinterpret_cast<const std::byte*>(&length), 8}, forged);
    auto recv = net.recv(key, {reinterpret_cast<std::byte*>(lengths), 8}, forged);
    auto both = colls::when_all(std::move(send), std::move(recv));
    auto waits = [](auto& operations) -> colls::task<> { co_await std::move(operations); };
    auto exchange = waits(both);
    try {
      all.wait(exchange);
    } catch (const colls::error&) {
      CHECK(all[1].failed() != nullptr);  // the other rank has refused it already
    }
    const colls::failure why = failure_of(all, call);
    CAPTURE(std::string(why.detail));
    CHECK(why.code == errc::not_enough_memory);
    REQUIRE(all[1].failed() != nullptr);
    CHECK(all[1].failed()->code == errc::not_enough_memory);
  }
}

#if !defined(SANITIZED)
TEST_CASE("a rank without memory for the result ends the call on all ranks") {
  const std::vector<char> data(100'000);
  expect_end_without_memory([&](auto& comm) { return comm.all_gather_v(data); });
}
#endif

}  // namespace
