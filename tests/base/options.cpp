// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/base/options.hpp>

#include "../support/communicators.hpp"

#include <chrono>

// Pinned algorithms, deadlines, the order of reductions and the element type on the wire. Every
// call takes options.

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
static_assert(time_span(2s) == 2000ms && time_span::from_nanoseconds(5) == 5ns &&
              time_span(1s) != 2s);
static_assert(time_span(2ns).after(5) == 7 && time_span(-1ns).after(5) == 4);
static_assert(time_span(std::chrono::hours::max()).after(5) == colls::never);

TEST_CASE("an algorithm is found by its name") {
  for (int i = 0; i <= static_cast<int>(algorithm::native); ++i) {
    const auto algo = static_cast<algorithm>(i);
    CHECK(colls::algorithm_of(name(algo)) == algo);
  }
  for (const char* none : {"", "Ring", "ring ", "automatic", "unknown algorithm"}) {
    CHECK(colls::algorithm_of(none) == std::nullopt);
  }
}

TEST_CASE("every call takes options, with and without an operation") {
  colls::inproc::run(2, [](communicator& comm) -> task<> {
    const auto me = static_cast<std::size_t>(comm.rank());
    const options opts{.timeout = 1min};
    std::vector<int> a{1, 2};
    std::vector<int> b{3, 4};
    std::vector<int> one{1};
    const std::vector<int> counts{1, 1};
    co_await comm.all_reduce(a, {.timeout = 1min});
    co_await comm.all_reduce(a, colls::plus{}, {.timeout = 1min});
    co_await comm.all_reduce(a, b, {.timeout = 1min});
    co_await comm.all_reduce(a, b, colls::plus{}, opts);
    co_await comm.all_reduce(colls::group{a, b}, {.timeout = 1min});
    co_await comm.all_reduce(colls::group{a, b}, colls::plus{}, opts);
    CHECK(a == std::vector<int>{16, 32});
    CHECK(b == std::vector<int>{32, 64});
    co_await comm.reduce(a, 0, opts);
    co_await comm.reduce(a, 0, colls::plus{}, {.timeout = 1min});
    co_await comm.reduce(a, b, 0, {.timeout = 1min});
    co_await comm.reduce(a, b, 0, colls::plus{}, opts);
    co_await comm.reduce_scatter(a, one, {.timeout = 1min});
    co_await comm.reduce_scatter(a, one, colls::plus{}, opts);
    co_await comm.reduce_scatter_v(a, one, counts, {.timeout = 1min});
    co_await comm.reduce_scatter_v(a, one, counts, colls::plus{}, opts);
    co_await comm.scan(a, {.timeout = 1min});
    co_await comm.scan(a, colls::plus{}, opts);
    co_await comm.exscan(a, {.timeout = 1min});
    co_await comm.exscan(a, colls::plus{}, opts);
    co_await comm.broadcast(a, 0, {.timeout = 1min});
    co_await comm.barrier({.timeout = 1min});
    co_await comm.all_gather(one, a, {.timeout = 1min});
    co_await comm.all_gather_v(one, a, counts, opts);
    co_await comm.gather(one, a, 0, {.timeout = 1min});
    co_await comm.gather_v(one, a, counts, 0, {.timeout = 1min});
    co_await comm.scatter(a, one, 0, {.timeout = 1min});
    co_await comm.scatter_v(a, counts, one, 0, opts);
    co_await comm.all_to_all(a, b, {.timeout = 1min});
    co_await comm.all_to_all_v(a, counts, b, counts, {.timeout = 1min});
    auto sent = comm.send(a, static_cast<int>(1 - me), 0, {.timeout = 1min});
    co_await comm.recv(b, colls::any_source, 0, {.timeout = 1min});
    co_await sent;
    co_await comm.send_recv(a, static_cast<int>(1 - me), b, colls::any_source, 0, opts);
    CHECK((co_await comm.split(0, 0, opts)).size() == 2);
    const communicator same = co_await comm.dup(opts);
    const std::vector<int> both{0, 1};
    const communicator listed = co_await comm.group(both, opts);
    CHECK((same.size() == 2 && listed.size() == 2));
  });
}

/// Calls `call(communicator, options)` with that algorithm on all ranks: it succeeds, or is
/// not_applicable on all of them.
template <class Call>
void check_pin(algorithm algo, bool exists, const Call& call) {
  CAPTURE(colls::name(algo));
  communicators all(3);
  std::vector<operation<>> kept;
  for (int rank = 0; rank < 3; ++rank) kept.push_back(call(all[rank], options{.algorithm = algo}));
  for (auto& each : kept) {
    const colls::failure why = failure_of(all, each);
    CHECK(why.code == (exists ? errc{} : errc::not_applicable));
    if (!exists) CHECK(why.sequence == 0);
    if (!exists) CHECK(says(why, colls::name(algo)));
  }
  all.check_good();
}

TEST_CASE("a pinned algorithm is used or not applicable, never silently replaced") {
  using enum algorithm;
  std::vector<std::vector<int>> data(3, std::vector<int>(3));
  std::vector<std::vector<int>> more(3, std::vector<int>(9));
  const auto own = [&](communicator& c) -> auto& {
    return data[static_cast<std::size_t>(c.rank())];
  };
  const auto wide = [&](communicator& c) -> auto& {
    return more[static_cast<std::size_t>(c.rank())];
  };
  const auto kept_order = [](int a, int b) { return a + b; };
  for (int number = 1; number <= static_cast<int>(native) + 1; ++number) {
    const auto algo = number <= static_cast<int>(native) ? static_cast<algorithm>(number) : custom;
    const auto any_of = [&](auto... known) { return ((algo == known) || ...); };
    const auto pin = [&](bool exists, const auto& call) { check_pin(algo, exists, call); };
    pin(any_of(linear, dissemination, binomial_tree, direct),
        [](communicator& c, options o) { return c.barrier(o); });
    pin(any_of(linear, binomial_tree, knomial_tree, scatter_all_gather, chain, double_tree,
               circulant),
        [&](communicator& c, options o) { return c.broadcast(own(c), 1, o); });
    pin(any_of(linear, ring, recursive_doubling, recursive_halving, double_tree, circulant,
               hierarchical, direct),
        [&](communicator& c, options o) { return c.all_reduce(own(c), o); });
    pin(any_of(linear, recursive_doubling, recursive_halving, double_tree, direct),
        [&](communicator& c, options o) { return c.all_reduce(own(c), kept_order, o); });
    pin(any_of(linear, binomial_tree, knomial_tree, reduce_scatter_gather, chain, double_tree),
        [&](communicator& c, options o) { return c.reduce(own(c), 2, o); });
    pin(any_of(linear, ring, recursive_halving, circulant, pairwise),
        [&](communicator& c, options o) { return c.reduce_scatter(wide(c), own(c), o); });
    pin(any_of(linear, pairwise), [&](communicator& c, options o) {
      return c.reduce_scatter(wide(c), own(c), kept_order, o);
    });
    pin(any_of(linear, ring, recursive_doubling, circulant, bruck),
        [&](communicator& c, options o) { return c.all_gather(own(c), wide(c), o); });
    pin(any_of(linear, binomial_tree),
        [&](communicator& c, options o) { return c.gather(own(c), wide(c), 0, o); });
    pin(any_of(linear, binomial_tree),
        [&](communicator& c, options o) { return c.scatter(wide(c), own(c), 0, o); });
    pin(any_of(linear, pairwise, bruck),
        [&](communicator& c, options o) { return c.all_to_all(own(c), own(c), o); });
    pin(any_of(linear, recursive_doubling, chain),
        [&](communicator& c, options o) { return c.scan(own(c), o); });
    pin(any_of(linear, recursive_doubling, chain),
        [&](communicator& c, options o) { return c.exscan(own(c), o); });
    // Algorithms with the order of ranks: linear, direct, and chains of ranks.
    pin(any_of(linear, direct), [&](communicator& c, options o) {
      o.order = colls::order::rank;
      return c.all_reduce(own(c), o);
    });
    pin(any_of(linear, chain), [&](communicator& c, options o) {
      o.order = colls::order::rank;
      return c.scan(own(c), o);
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

TEST_CASE("every call accepts a pin at compile time") {
  colls::inproc::run(3, [](communicator& comm) -> task<> {
    const options opts{.timeout = 1min};
    std::vector<int> a{1, 2, 3};
    std::vector<int> b{1, 2, 3};
    std::vector<int> one{1};
    const std::vector<int> counts{1, 1, 1};
    constexpr algorithm linear = algorithm::linear;
    constexpr algorithm doubling = algorithm::recursive_doubling;
    co_await comm.all_reduce<algorithm::ring>(a);
    co_await comm.all_reduce<algorithm::ring>(a, opts);
    co_await comm.all_reduce<doubling>(a, b, opts);
    co_await comm.all_reduce<linear>(colls::group{a, b});
    co_await comm.all_reduce<linear>(colls::group{a, b}, opts);
    co_await comm.reduce<linear>(a, 0);
    co_await comm.reduce<linear>(a, 0, opts);
    co_await comm.reduce<linear>(a, b, 0, opts);
    co_await comm.reduce_scatter<linear>(a, one, opts);
    co_await comm.reduce_scatter_v<linear>(a, one, counts);
    co_await comm.reduce_scatter_v<linear>(a, one, counts, opts);
    co_await comm.scan<doubling>(a);
    co_await comm.scan<linear>(a, opts);
    co_await comm.exscan<linear>(a, opts);
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
  // A pin is part of the fingerprint: ranks with different pins mismatch.
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
        // Sums of these values depend on the order of the additions.
        const auto value = [](int rank) { return 1.0f / (3.0f + static_cast<float>(rank * rank)); };
        const auto sum = [&](int ranks) {
          float sequential = value(0);
          for (int rank = 1; rank < ranks; ++rank) sequential += value(rank);
          return sequential;
        };
        const options opts{.order = colls::order::rank};
        const int me = comm.rank();
        std::vector<float> data(n, value(me));
        co_await comm.all_reduce(data, opts);
        CHECK(data[n - 1] == sum(comm.size()));
        data.assign(n, value(me));
        co_await comm.reduce(data, 1, opts);
        CHECK(data[n - 1] == (me == 1 ? sum(comm.size()) : value(me)));
        data.assign(n, value(me));
        co_await comm.scan(data, opts);
        CHECK(data[n - 1] == sum(me + 1));
        data.assign(n, value(me));
        co_await comm.exscan(data, opts);
        CHECK(data[n - 1] == (me == 0 ? value(0) : sum(me)));
        const std::vector<float> in(n * static_cast<std::size_t>(comm.size()), value(me));
        co_await comm.reduce_scatter(in, data, opts);
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
    // The bits are the same if all inputs are available at once.
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

TEST_CASE("a timeout cancels an unmatched receive or send and the communicator stays usable") {
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

TEST_CASE("a timeout that has passed when its operation completes is ignored") {
  communicators all(1);
  std::vector<int> data(10);
  all.wait(all[0].all_reduce(data, {.timeout = 1ns}));
  all.check_good();
}

}  // namespace
