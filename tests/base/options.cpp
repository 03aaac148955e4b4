// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/options.hpp>

#include "../support/communicators.hpp"

#include <chrono>

// Pins, deadlines, order of sums and what travels; every call takes options.

namespace {

using colls::algorithm;
using colls::errc;
using colls::operation;
using colls::options;
using colls::task;
using colls::time_span;
using colls::inproc::communicator;
using namespace std::chrono_literals;

static_assert(!time_span() && !time_span(0s) && time_span(5s).count() == 5 * colls::seconds);
static_assert(time_span(250ms).count() == 250 * colls::milliseconds && time_span(3ns).count() == 3);
static_assert(time_span(2h).count() == 7200 * colls::seconds && time_span(-1s).count() < 0);
static_assert(time_span(std::chrono::duration<double>(0.5)).count() == 500 * colls::milliseconds);
static_assert(time_span(std::chrono::duration<int, std::ratio<1, 3>>(2)).count() == 666'666'666);
static_assert(time_span(std::chrono::duration<double>(1e-12)));
static_assert(time_span(std::chrono::seconds::max()).count() == colls::never);
static_assert(time_span(std::chrono::hours::min()).count() == -colls::never);
static_assert(time_span(2s) == 2000ms && time_span::of(5) == 5ns && time_span(1s) != 2s);
static_assert(time_span(2ns).after(5) == 7 && time_span(-1ns).after(5) == 4);
static_assert(time_span(std::chrono::hours::max()).after(5) == colls::never);

TEST_CASE("an algorithm is found by its name") {
  for (int i = 0; i <= static_cast<int>(algorithm::native); ++i) {
    const auto how = static_cast<algorithm>(i);
    CHECK(colls::algorithm_of(name(how)) == how);
  }
  for (const char* none : {"", "Ring", "ring ", "automatic", "unknown algorithm"}) {
    CHECK(colls::algorithm_of(none) == std::nullopt);
  }
}

TEST_CASE("every call takes options, with and without an operation") {
  colls::inproc::run(2, [](communicator& comm) -> task<> {
    const auto me = static_cast<std::size_t>(comm.rank());
    const options how{.timeout = 1min};
    std::vector<int> a{1, 2};
    std::vector<int> b{3, 4};
    std::vector<int> one{1};
    const std::vector<int> counts{1, 1};
    co_await comm.all_reduce(a, {.timeout = 1min});
    co_await comm.all_reduce(a, colls::plus{}, {.timeout = 1min});
    co_await comm.all_reduce(a, b, {.timeout = 1min});
    co_await comm.all_reduce(a, b, colls::plus{}, how);
    co_await comm.all_reduce(colls::group{a, b}, {.timeout = 1min});
    co_await comm.all_reduce(colls::group{a, b}, colls::plus{}, how);
    CHECK(a == std::vector<int>{16, 32});
    CHECK(b == std::vector<int>{32, 64});
    co_await comm.reduce(a, 0, how);
    co_await comm.reduce(a, 0, colls::plus{}, {.timeout = 1min});
    co_await comm.reduce(a, b, 0, {.timeout = 1min});
    co_await comm.reduce(a, b, 0, colls::plus{}, how);
    co_await comm.reduce_scatter(a, one, {.timeout = 1min});
    co_await comm.reduce_scatter(a, one, colls::plus{}, how);
    co_await comm.reduce_scatter_v(a, one, counts, {.timeout = 1min});
    co_await comm.reduce_scatter_v(a, one, counts, colls::plus{}, how);
    co_await comm.scan(a, {.timeout = 1min});
    co_await comm.scan(a, colls::plus{}, how);
    co_await comm.exscan(a, {.timeout = 1min});
    co_await comm.exscan(a, colls::plus{}, how);
    co_await comm.broadcast(a, 0, {.timeout = 1min});
    co_await comm.barrier({.timeout = 1min});
    co_await comm.all_gather(one, a, {.timeout = 1min});
    co_await comm.all_gather_v(one, a, counts, how);
    co_await comm.gather(one, a, 0, {.timeout = 1min});
    co_await comm.gather_v(one, a, counts, 0, {.timeout = 1min});
    co_await comm.scatter(a, one, 0, {.timeout = 1min});
    co_await comm.scatter_v(a, counts, one, 0, how);
    co_await comm.all_to_all(a, b, {.timeout = 1min});
    co_await comm.all_to_all_v(a, counts, b, counts, {.timeout = 1min});
    auto sent = comm.send(a, static_cast<int>(1 - me), 0, {.timeout = 1min});
    co_await comm.recv(b, colls::any_source, 0, {.timeout = 1min});
    co_await sent;
    co_await comm.send_recv(a, static_cast<int>(1 - me), b, colls::any_source, 0, how);
    CHECK((co_await comm.split(0, 0, how)).size() == 2);
    const communicator same = co_await comm.dup(how);
    const std::vector<int> both{0, 1};
    const communicator listed = co_await comm.group(both, how);
    CHECK((same.size() == 2 && listed.size() == 2));
  });
}

/// `call(communicator, options)` with that algorithm on all ranks: done, or not_applicable on all.
template <class Call>
void check_pin(algorithm how, bool exists, const Call& call) {
  CAPTURE(colls::name(how));
  communicators all(3);
  std::vector<operation<>> kept;
  for (int rank = 0; rank < 3; ++rank) kept.push_back(call(all[rank], options{.algorithm = how}));
  for (auto& each : kept) {
    const colls::failure why = failure_of(all, each);
    CHECK(why.code == (exists ? errc{} : errc::not_applicable));
    if (!exists) CHECK(why.sequence == 0);
    if (!exists) CHECK(says(why, colls::name(how)));
  }
  all.check_good();
}

TEST_CASE("a pin is kept or not applicable, never silently another") {
  using enum algorithm;
  std::vector<std::vector<int>> data(3, std::vector<int>(3));
  std::vector<std::vector<int>> more(3, std::vector<int>(9));
  const auto mine = [&](communicator& c) -> auto& {
    return data[static_cast<std::size_t>(c.rank())];
  };
  const auto wide = [&](communicator& c) -> auto& {
    return more[static_cast<std::size_t>(c.rank())];
  };
  const auto kept_order = [](int a, int b) { return a + b; };
  for (int number = 1; number <= static_cast<int>(native); ++number) {
    const auto how = static_cast<algorithm>(number);
    const auto any_of = [&](auto... known) { return ((how == known) || ...); };
    const auto pin = [&](bool exists, const auto& call) { check_pin(how, exists, call); };
    pin(any_of(linear, dissemination, binomial_tree, direct),
        [](communicator& c, options o) { return c.barrier(o); });
    pin(any_of(linear, binomial_tree, knomial_tree, scatter_all_gather, chain, double_tree,
               circulant),
        [&](communicator& c, options o) { return c.broadcast(mine(c), 1, o); });
    pin(any_of(linear, ring, recursive_doubling, recursive_halving, double_tree, circulant,
               hierarchical, direct),
        [&](communicator& c, options o) { return c.all_reduce(mine(c), o); });
    pin(any_of(linear, recursive_doubling, recursive_halving, double_tree, direct),
        [&](communicator& c, options o) { return c.all_reduce(mine(c), kept_order, o); });
    pin(any_of(linear, binomial_tree, knomial_tree, reduce_scatter_gather, chain, double_tree),
        [&](communicator& c, options o) { return c.reduce(mine(c), 2, o); });
    pin(any_of(linear, ring, recursive_halving, circulant, pairwise),
        [&](communicator& c, options o) { return c.reduce_scatter(wide(c), mine(c), o); });
    pin(any_of(linear, pairwise), [&](communicator& c, options o) {
      return c.reduce_scatter(wide(c), mine(c), kept_order, o);
    });
    pin(any_of(linear, ring, recursive_doubling, circulant, bruck),
        [&](communicator& c, options o) { return c.all_gather(mine(c), wide(c), o); });
    pin(any_of(linear, binomial_tree),
        [&](communicator& c, options o) { return c.gather(mine(c), wide(c), 0, o); });
    pin(any_of(linear, binomial_tree),
        [&](communicator& c, options o) { return c.scatter(wide(c), mine(c), 0, o); });
    pin(any_of(linear, pairwise, bruck),
        [&](communicator& c, options o) { return c.all_to_all(mine(c), mine(c), o); });
    pin(any_of(linear, recursive_doubling, chain),
        [&](communicator& c, options o) { return c.scan(mine(c), o); });
    pin(any_of(linear, recursive_doubling, chain),
        [&](communicator& c, options o) { return c.exscan(mine(c), o); });
    // The sequential order is that of linear, direct, and chains of ranks.
    pin(any_of(linear, direct), [&](communicator& c, options o) {
      o.order = colls::order::rank;
      return c.all_reduce(mine(c), o);
    });
    pin(any_of(linear, chain), [&](communicator& c, options o) {
      o.order = colls::order::rank;
      return c.scan(mine(c), o);
    });
  }
}

TEST_CASE("neighbour_exchange is for an even number of ranks") {
  for (const int p : {1, 2, 3, 4}) {
    communicators all(p);
    std::vector<int> in(static_cast<std::size_t>(p));
    std::vector<std::vector<int>> out(static_cast<std::size_t>(p));
    std::vector<operation<>> kept;
    for (int rank = 0; rank < p; ++rank) {
      const auto me = static_cast<std::size_t>(rank);
      in[me] = 10 + rank;
      out[me].resize(static_cast<std::size_t>(p));
      kept.push_back(all[rank].all_gather(std::span(&in[me], 1), out[me],
                                          {.algorithm = algorithm::neighbour_exchange}));
    }
    for (auto& each : kept) {
      const colls::failure why = failure_of(all, each);
      CHECK(why.code == (p % 2 == 0 ? errc{} : errc::not_applicable));
      if (p % 2 != 0) CHECK(says(why, "even number of ranks"));
    }
    if (p % 2 == 0) CHECK(out == std::vector(static_cast<std::size_t>(p), in));
    all.check_good();
  }
}

TEST_CASE("a pin at compile time takes part in every call") {
  colls::inproc::run(3, [](communicator& comm) -> task<> {
    const options how{.timeout = 1min};
    std::vector<int> a{1, 2, 3};
    std::vector<int> b{1, 2, 3};
    std::vector<int> one{1};
    const std::vector<int> counts{1, 1, 1};
    constexpr algorithm linear = algorithm::linear;
    constexpr algorithm doubling = algorithm::recursive_doubling;
    co_await comm.all_reduce<algorithm::ring>(a);
    co_await comm.all_reduce<algorithm::ring>(a, how);
    co_await comm.all_reduce<doubling>(a, b, how);
    co_await comm.all_reduce<linear>(colls::group{a, b});
    co_await comm.all_reduce<linear>(colls::group{a, b}, how);
    co_await comm.reduce<linear>(a, 0);
    co_await comm.reduce<linear>(a, 0, how);
    co_await comm.reduce<linear>(a, b, 0, how);
    co_await comm.reduce_scatter<linear>(a, one, how);
    co_await comm.reduce_scatter_v<linear>(a, one, counts);
    co_await comm.reduce_scatter_v<linear>(a, one, counts, how);
    co_await comm.scan<doubling>(a);
    co_await comm.scan<linear>(a, how);
    co_await comm.exscan<linear>(a, how);
    co_await comm.broadcast<linear>(a, 0);
    co_await comm.barrier<linear>();
    co_await comm.all_gather<linear>(one, a);
    co_await comm.all_gather_v<linear>(one, a, counts);
    co_await comm.gather<linear>(one, a, 0);
    co_await comm.gather_v<linear>(one, a, counts, 0);
    co_await comm.scatter<linear>(a, one, 0);
    co_await comm.scatter_v<linear>(a, counts, one, 0);
    co_await comm.all_to_all<linear>(a, b);
    co_await comm.all_to_all_v<linear>(a, counts, b, counts);
  });
  // It shows in the fingerprint: ranks that pin differently do not agree.
  communicators all(2);
  std::vector<int> a{1};
  std::vector<int> b{1};
  operation<> first = all[0].all_reduce<algorithm::ring>(a);
  operation<> second = all[1].all_reduce<algorithm::linear>(b);
  CHECK(failure_of(all, first).code == errc::mismatch);
  CHECK(says(failure_of(all, second), "rank 0 called all_reduce of 1 x int32, plus, ring"));
}

TEST_CASE("segments of any length give the same result") {
  for (const std::size_t segment :
       std::initializer_list<std::size_t>{1, 3, 4, 100, 4096, 1 << 30}) {
    colls::inproc::run(3, [segment](communicator& comm) -> task<> {
      std::vector<int> data(1000);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = comm.rank() + static_cast<int>(i);
      co_await comm.all_reduce(data, {.algorithm = algorithm::ring, .segment = segment});
      for (std::size_t i = 0; i < data.size(); ++i) CHECK(data[i] == 3 + 3 * static_cast<int>(i));
    });
  }
}

TEST_CASE("order::rank gives the bits of the sequential sum") {
  for (const int p : {2, 3, 5, 8}) {
    for (const std::size_t n : {std::size_t{1}, std::size_t{50'000}}) {
      colls::inproc::run(p, [n](communicator& comm) -> task<> {
        // Sums of these differ with the order of the additions.
        const auto value = [](int rank) { return 1.0f / (3.0f + static_cast<float>(rank * rank)); };
        const auto sum = [&](int ranks) {
          float sequential = value(0);
          for (int rank = 1; rank < ranks; ++rank) sequential += value(rank);
          return sequential;
        };
        const options how{.order = colls::order::rank};
        const int me = comm.rank();
        std::vector<float> data(n, value(me));
        co_await comm.all_reduce(data, how);
        CHECK(data[n - 1] == sum(comm.size()));
        data.assign(n, value(me));
        co_await comm.reduce(data, 1, how);
        CHECK(data[n - 1] == (me == 1 ? sum(comm.size()) : value(me)));
        data.assign(n, value(me));
        co_await comm.scan(data, how);
        CHECK(data[n - 1] == sum(me + 1));
        data.assign(n, value(me));
        co_await comm.exscan(data, how);
        CHECK(data[n - 1] == (me == 0 ? value(0) : sum(me)));
        const std::vector<float> in(n * static_cast<std::size_t>(comm.size()), value(me));
        co_await comm.reduce_scatter(in, data, how);
        CHECK(data[n - 1] == sum(comm.size()));
      });
    }
  }
}

TEST_CASE("sums of bfloat16 are rounded once, or at each hop with wire::storage") {
  colls::inproc::run(4, [](communicator& comm) -> task<> {
    // 256 + 1 rounds to 256 in bfloat16; 256 + 3 to 260 in the end.
    const auto fill = [&] {
      return std::vector<colls::bfloat16>(10, colls::bfloat16(comm.rank() == 0 ? 256.0f : 1.0f));
    };
    std::vector<colls::bfloat16> data = fill();
    co_await comm.all_reduce(data, {.order = colls::order::rank});
    CHECK(static_cast<float>(data[9]) == 260.0f);
    data = fill();
    co_await comm.all_reduce(data, {.order = colls::order::rank, .wire = colls::wire::storage});
    CHECK(static_cast<float>(data[9]) == 256.0f);
    // Also where all inputs are at hand at once: no bit depends on that.
    data = fill();
    co_await comm.all_reduce(data,
                             {.algorithm = colls::algorithm::direct, .wire = colls::wire::storage});
    CHECK(static_cast<float>(data[9]) == 256.0f);
  });
  communicators all(2);
  std::vector<colls::bfloat16> a(3);
  std::vector<colls::bfloat16> b(3);
  operation<> first = all[0].all_reduce(a, {.wire = colls::wire::storage});
  operation<> second = all[1].all_reduce(b);
  CHECK(failure_of(all, first).code == errc::mismatch);
  CHECK(says(failure_of(all, second), "accumulate type"));
}

TEST_CASE("options.timeout ends an operation that another rank does not call") {
  communicators all(3);
  std::vector<int> data(10);
  std::vector<int> other(10);
  operation<> first = all[0].all_reduce(data, {.timeout = 30ms});
  operation<> second = all[1].all_reduce(other);
  const colls::failure why = failure_of(all, first);
  CHECK(why.code == errc::timeout);
  CHECK(why.operation == colls::collective::all_reduce);
  CHECK(why.sequence == 1);
  CHECK(why.bytes_expected == 0);
  CHECK(why.elapsed_ns >= 30 * colls::milliseconds);
  CHECK(says(why, "options.timeout is over"));
  CHECK(failure_of(all, second).code == errc::timeout);
  operation<> late = all[2].all_reduce(data);
  CHECK(failure_of(all, late).code == errc::timeout);
}

TEST_CASE("a receive that nobody answers in time is taken back and the communicator stays good") {
  communicators all(2);
  std::vector<int> data(10);
  std::vector<int> large(100'000);
  operation<colls::received> recv = all[0].recv(data, 1, 0, {.timeout = 20ms});
  operation<colls::received> any = all[0].recv(data, colls::any_source, 0, {.timeout = 25ms});
  operation<> send = all[0].send(large, 1, 3, {.timeout = 30ms});
  operation<> forever = all[0].send(large, 1, 5, {.timeout = std::chrono::hours::max()});
  CHECK(failure_of(all, recv).code == errc::timeout);
  CHECK(failure_of(all, recv).waited_for == 1);
  CHECK(says(failure_of(all, recv), "rank 1 has not sent tag 0; it has no operation under way"));
  CHECK(failure_of(all, any).code == errc::timeout);
  CHECK(failure_of(all, send).code == errc::timeout);
  CHECK(failure_of(all, send).operation == colls::collective::send);
  CHECK(says(failure_of(all, any), "no rank has sent tag 0; options.timeout is over"));
  CHECK(says(failure_of(all, send), "rank 1 has not received tag 3"));
  operation<> sent = all[1].send(data, 0);
  data[0] = 3;
  all.wait(all[0].recv(data, 1));
  CHECK(data[0] == 0);
  CHECK_FALSE(forever.done());
  all.wait(all[1].recv(large, 0, 5));
  all.wait(forever);
  all.check_good();
}

TEST_CASE("a timeout that is over before the end is not noticed after it") {
  communicators all(1);
  std::vector<int> data(10);
  all.wait(all[0].all_reduce(data, {.timeout = 1ns}));
  all.check_good();
}

}  // namespace
