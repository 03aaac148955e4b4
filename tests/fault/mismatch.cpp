// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls that do not match end with `mismatch` on all ranks, and name both sides.

#include "processes.hpp"

using namespace processes;
using colls::algorithm;
using colls::errc;

namespace {

using call = std::function<task<>(colls::world&, std::vector<int>&)>;

/// A call of one rank, and the call of all others.
struct variant {
  const char* what;
  call odd;
  call even;
  const char* differ = "";  // what the error has to contain
};

template <class Function>
call calling(Function start) {
  return [=](colls::world& world, std::vector<int>& data) -> task<> {
    colls::operation<> started = start(world, data);
    co_await started;
  };
}
template <class First, class Second>
call calling(First first, Second second) {
  return [=](colls::world& world, std::vector<int>& data) -> task<> {
    colls::operation<> one = first(world, data);
    co_await one;
    colls::operation<> two = second(world, data);
    co_await two;
  };
}

auto sum(std::size_t count) {
  return [=](colls::world& world, std::vector<int>& data) {
    return world.all_reduce(std::span(data).first(count));
  };
}
auto sum_by(algorithm algo) {
  return [=](colls::world& world, std::vector<int>& data) {
    return world.all_reduce(data, {.algorithm = algo});
  };
}
auto broadcast(int root, std::size_t count) {
  return [=](colls::world& world, std::vector<int>& data) {
    return world.broadcast(std::span(data).first(count), root);
  };
}
colls::operation<> barrier(colls::world& world, std::vector<int>&) { return world.barrier(); }
colls::operation<> largest(colls::world& world, std::vector<int>& data) {
  return world.all_reduce(data, colls::maximum{});
}
colls::operation<> mean(colls::world& world, std::vector<int>& data) {
  return world.all_reduce(data, colls::average{});
}
colls::operation<> sum_of_unsigned(colls::world& world, std::vector<int>& data) {
  return world.all_reduce(std::span(reinterpret_cast<unsigned*>(data.data()), data.size()));
}
auto reduce(int root) {
  return [=](colls::world& world, std::vector<int>& data) { return world.reduce(data, root); };
}
auto gather_of(std::size_t mine) {
  return [=](colls::world& world, std::vector<int>& data) {
    const auto size = static_cast<std::size_t>(world.size());
    std::vector<std::size_t> counts(size, 10);
    counts[0] = mine;
    const std::size_t own = counts[static_cast<std::size_t>(world.rank())];
    std::size_t whole = 0;
    for (const std::size_t count : counts) whole += count;
    const std::span all(data);
    return world.all_gather_v(all.first(own), all.subspan(100, whole), counts);
  };
}

constexpr std::size_t longest = 300'000;

/// The rank `odd` makes its call, the others make theirs; then all go on as if nothing were wrong.
job::rank_main one_differs(const variant& by, int odd) {
  return [=](colls::world& world, const line&) -> task<> {
    std::vector<int> data(longest, 1);
    for (int i = 0; i < 3; ++i) {
      colls::operation<> before = world.all_reduce(std::span(data).first(10));
      co_await before;
    }
    const call& mine = world.rank() == odd ? by.odd : by.even;
    if (mine) {
      task<> calls = mine(world, data);
      co_await calls;
    }
    for (int i = 0; i < 100; ++i) co_await world.barrier();
  };
}

/// Checks that every rank gets `mismatch`, with the odd rank, one of the others and the difference.
void check(job& all, int odd, const std::string& differ) {
  for (int rank = 0; rank < all.size(); ++rank) {
    const ending& end = all.wait(rank);
    CAPTURE(rank);
    CAPTURE(end.message);
    CHECK(end.code == errc::mismatch);
    CHECK(contains(end.message, "rank " + std::to_string(odd) + " called"));
    std::size_t named = 0;
    for (int other = 0; other < all.size(); ++other) {
      if (other != odd) named += contains(end.message, "rank " + std::to_string(other) + " called");
    }
    CHECK(named == 1);
    CHECK(contains(end.message, differ));
  }
}

}  // namespace

TEST_CASE("one rank calls something else") {
  const variant all[] = {
      {"count", calling(sum(10)), calling(sum(11)), "differ in count"},
      {"long count", calling(sum(longest)), calling(sum(longest - 1)), "differ in count"},
      {"short and long count", calling(sum(5)), calling(sum(longest)), "differ in count"},
      {"no elements", calling(sum(0)), calling(sum(1)), "differ in count"},
      {"type", calling(sum_of_unsigned), calling(sum(longest)), "differ in type"},
      {"operation", calling(largest), calling(sum(longest)), "differ in op"},
      {"average", calling(mean), calling(sum(longest)), "differ in op"},
      {"root: two ranks that only receive", calling(broadcast(0, 10)), calling(broadcast(1, 10)),
       "differ in root"},
      {"root of a long broadcast", calling(broadcast(1, longest)), calling(broadcast(0, longest)),
       "differ in root"},
      {"root of reduce", calling(reduce(0)), calling(reduce(1)), "differ in root"},
      {"counts of one rank", calling(gather_of(10)), calling(gather_of(11)), "differ in count"},
      {"algorithm", calling(sum_by(algorithm::ring)),
       calling(sum_by(algorithm::recursive_doubling)), "differ in algorithm"},
      {"collective", calling(barrier), calling(sum(10)), "differ in collective"},
      {"order of calls", calling(barrier, sum(10)), calling(sum(10), barrier),
       "differ in collective"},
      {"order of broadcasts", calling(broadcast(0, 10), broadcast(0, 20)),
       calling(broadcast(0, 20), broadcast(0, 10)), "differ in count"},
      {"a call is left out", {}, calling(sum(longest)), "differ in collective"},
      {"a call too many", calling(sum(longest)), {}, "differ in collective"},
  };
  double slowest = 0;
  for (const variant& each : all) {
    for (const int size : {2, 3, 4}) {
      for (const int odd : {0, size - 1}) {
        CAPTURE(std::string(each.what));
        CAPTURE(size);
        CAPTURE(odd);
        const double began = now();
        job ranks(size, one_differs(each, odd));
        check(ranks, odd, each.differ);
        slowest = std::max(slowest, now() - began);
      }
    }
  }
  MESSAGE("slowest, with start and end: ", slowest, " s");
}

TEST_CASE("a root that is far ahead by the time the difference is seen") {
  for (const int size : {2, 4}) {
    for (const std::size_t odd_call : {std::size_t{5}, std::size_t{290}}) {
      CAPTURE(size);
      CAPTURE(odd_call);
      job all(size, [=](colls::world& world, const line& test) -> task<> {
        const bool odd = world.rank() == size - 1;
        std::vector<int> data(20, 1);
        co_await world.barrier();
        if (odd) test.hear();
        for (std::size_t i = 0; i < 300; ++i) {
          co_await world.broadcast(std::span(data).first(odd && i == odd_call ? 9 : 10), 0);
        }
        test.say("through");
        co_await world.barrier();
      });
      REQUIRE(all.hear(0) == "through");
      all.tell(size - 1);
      check(all, size - 1, "");
    }
  }
}

TEST_CASE("a mismatch in one group leaves the other and the world alone") {
  job all(4, [](colls::world& world, const line& test) -> task<> {
    auto half = co_await world.split(world.rank() / 2);
    std::vector<int> data(100, 1);
    try {
      co_await half.all_reduce(std::span(data).first(world.rank() == 1 ? 10 : 11));
      test.say("went on");
    } catch (const colls::error& thrown) {
      const bool named =
          contains(thrown.what(), "rank 0 called") && contains(thrown.what(), "rank 1 called");
      test.say(thrown.record().code == errc::mismatch && named ? "mismatch" : thrown.what());
    }
    data.assign(data.size(), 1);
    co_await world.all_reduce(data);
    if (world.rank() >= 2) co_await half.all_reduce(data);
    test.say(std::to_string(data[0]));
  });
  for (int rank = 0; rank < 4; ++rank) {
    CHECK(all.hear(rank) == (rank < 2 ? "mismatch" : "went on"));
    CHECK(all.hear(rank) == (rank < 2 ? "4" : "8"));
    CHECK(all.wait(rank).status == 0);
  }
}
