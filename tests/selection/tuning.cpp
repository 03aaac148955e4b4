// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/selection/tuning.hpp>

#include "../support/closed_forms.hpp"
#include "../support/communicators.hpp"

#include <initializer_list>

// What tuning predicts, what it chooses, and that comm.explain tells what is done.

namespace {

using colls::algorithm;
using colls::algorithm_set;
using colls::collective;
using colls::cost;
using colls::costs;
using colls::link_cost;
using colls::network_cost;
using colls::plan;
using colls::question;

constexpr network_cost simple{.near = {1'000'000, 0, 1'024'000},  // 1 us, 1 ns a byte
                              .far = {},
                              .host_per_kib = 0,
                              .reduce_per_kib = 0,
                              .least_segment = 4096,
                              .one_thread = false};

struct pair {
  collective what;
  std::initializer_list<algorithm> algorithms;
};

const std::initializer_list<pair>& table() {
  using enum algorithm;
  static const std::initializer_list<pair> all{
      {collective::barrier, {linear, dissemination, binomial_tree, direct}},
      {collective::broadcast,
       {linear, binomial_tree, knomial_tree, scatter_all_gather, chain, double_tree, circulant,
        direct}},
      {collective::all_reduce,
       {linear, ring, recursive_doubling, recursive_halving, double_tree, circulant, hierarchical,
        direct}},
      {collective::reduce,
       {linear, binomial_tree, knomial_tree, reduce_scatter_gather, chain, double_tree, direct}},
      {collective::reduce_scatter, {linear, ring, recursive_halving, circulant, pairwise, direct}},
      {collective::all_gather,
       {linear, ring, recursive_doubling, circulant, bruck, neighbour_exchange, direct}},
      {collective::gather, {linear, binomial_tree, direct}},
      {collective::scatter, {linear, binomial_tree, direct}},
      {collective::all_to_all, {linear, pairwise, bruck, direct}},
      {collective::scan, {linear, recursive_doubling, chain, direct}},
  };
  return all;
}

TEST_CASE("messages and bytes are those of the closed forms") {
  for (const pair& each : table()) {
    for (const algorithm how : each.algorithms) {
      for (const int p : {1, 2, 3, 4, 5, 7, 8, 13, 16, 24, 64}) {
        if (how == algorithm::neighbour_exchange && p % 2 != 0) continue;
        for (const std::uint64_t chunk : {0u, 8u, 4096u, 100'000u}) {
          for (const plan& by : {plan{how, 0, 1, 2}, plan{how, 1000, 3, 4}}) {
            CAPTURE(name(each.what));
            CAPTURE(name(how));
            CAPTURE(p);
            CAPTURE(chunk);
            CAPTURE(by.radix);
            const auto ranks = static_cast<std::uint64_t>(p);
            const std::uint64_t bytes = each.what == collective::barrier ? 0 : chunk * ranks;
            const cost got = costs(simple, each.what, bytes, p, p).of(by);
            closed_forms::call call{colls::partition::blocks(chunk, p)};
            call.segment = by.segment;
            call.lanes = by.lanes;
            call.radix = by.radix;
            call.lends = true;
            const auto want = closed_forms::of(each.what, how, call);
            REQUIRE(want.has_value());
            CHECK(got.messages == want->messages);
            if (each.what != collective::barrier) CHECK(got.bytes == want->bytes);
            CHECK((got.time > 0) == (p > 1));
          }
        }
      }
    }
  }
}

TEST_CASE("times are those of the longest chain") {
  const auto us = [](collective what, std::uint64_t bytes, int p, const plan& by) {
    return static_cast<double>(costs(simple, what, bytes, p, p).of(by).time) * 1e-6;
  };
  using enum algorithm;
  // Issue 4's two: 6 us for recursive_doubling of 64 ranks, 14 us for the ring of 8.
  CHECK(us(collective::all_reduce, 0, 64, {recursive_doubling}) == doctest::Approx(6.0));
  CHECK(us(collective::all_reduce, 0, 8, {ring}) == doctest::Approx(14.0));
  CHECK(us(collective::all_reduce, 8000, 8, {ring}) == doctest::Approx(28.0));
  CHECK(us(collective::all_reduce, 8000, 8, {recursive_halving}) == doctest::Approx(20.0));
  CHECK(us(collective::all_reduce, 8000, 8, {circulant}) == doctest::Approx(20.0));
  CHECK(us(collective::all_reduce, 1000, 8, {recursive_doubling}) == doctest::Approx(6.0));
  CHECK(us(collective::all_reduce, 1000, 9, {recursive_doubling}) == doctest::Approx(9.0));
  CHECK(us(collective::broadcast, 1000, 8, {binomial_tree}) == doctest::Approx(6.0));
  // Rank 3 is served second, by the root's second child: one gap and two hops.
  CHECK(us(collective::broadcast, 1000, 5, {binomial_tree}) == doctest::Approx(5.0));
  CHECK(us(collective::broadcast, 4000, 4, {chain, 1000, 8}) == doctest::Approx(9.0));
  CHECK(us(collective::broadcast, 4000, 4, {circulant, 1000, 1}) == doctest::Approx(10.0));
  CHECK(us(collective::gather, 8000, 8, {binomial_tree}) == doctest::Approx(10.0));
  CHECK(us(collective::all_to_all, 8000, 8, {pairwise}) == doctest::Approx(14.0));
  CHECK(us(collective::barrier, 0, 9, {dissemination, 0, 1, 3}) == doctest::Approx(2.0));
}

TEST_CASE("direct counts as if all lent where all can, and else by its messages") {
  network_cost beside = simple;
  beside.lent_per_kib = 102'400;  // 0.1 ns a byte
  const auto of = [&](collective what, std::uint64_t bytes, int on_host) {
    return costs(beside, what, bytes, 4, on_host).of({algorithm::direct});
  };
  const auto us = [&](collective what, std::uint64_t bytes) {
    return static_cast<double>(of(what, bytes, 4).time) * 1e-6;
  };
  // Two rounds of 1 us, of which cards are 0.12 us more, and the bytes that a rank works on.
  constexpr std::uint64_t n = 80'000;
  CHECK(us(collective::all_reduce, n) == doctest::Approx(2.12 + 16));
  CHECK(us(collective::reduce_scatter, n) == doctest::Approx(2.12 + 10));
  CHECK(us(collective::reduce, 2 * n) == doctest::Approx(2.12 + 20));
  CHECK(us(collective::reduce, n) == doctest::Approx(2.072 + 40));  // the root alone
  CHECK(us(collective::all_gather, n) == doctest::Approx(2.12 + 12));
  CHECK(us(collective::broadcast, n) == doctest::Approx(2.072 + 16));
  CHECK(us(collective::gather, n) == doctest::Approx(2.072 + 4));
  CHECK(us(collective::all_to_all, n) == doctest::Approx(2.12 + 12));
  CHECK(us(collective::scan, n) == doctest::Approx(2.12 + 16));
  CHECK(of(collective::all_reduce, n, 4).messages == 24);
  CHECK(of(collective::all_reduce, n, 4).bytes == 12 * 24);
  CHECK(of(collective::broadcast, n, 4).messages == 6);
  CHECK(of(collective::reduce, n, 4).messages == 6);
  // Between hosts nobody does.
  CHECK(of(collective::all_reduce, n, 2).bytes == 12 * 24 + 2 * 12 * 20'000);
  // Short ones take one round: 1 us, and three messages of 1 ns a byte.
  CHECK(us(collective::all_reduce, 1000) == doctest::Approx(4.0));
  CHECK(us(collective::broadcast, 1000) == doctest::Approx(4.0));
  CHECK(us(collective::all_gather, 1000) == doctest::Approx(1.75));
  CHECK(of(collective::scan, 1000, 4).messages == 6);
  CHECK(of(collective::reduce, 1000, 4).bytes == 3000);
}

algorithm_set of(std::initializer_list<algorithm> list) {
  algorithm_set all;
  for (const algorithm how : list) all.add(how);
  return all;
}

TEST_CASE("the least predicted time is chosen, with what pieces serve it best") {
  colls::tuning tuning;
  network_cost busy = simple;
  busy.near.overhead = 100'000;
  tuning.set(busy);
  using enum algorithm;
  const algorithm_set some = of({linear, ring, recursive_doubling, circulant, double_tree});
  const plan open{automatic, 0, 0, 0};
  question call{collective::all_reduce, 8, 64, true, colls::order::any, true};
  CHECK(tuning.choose(call, open, some).how == recursive_doubling);
  call.bytes = 64 << 10;
  CHECK(tuning.choose(call, open, some).how == circulant);
  CHECK(tuning.choose(call, open, of({linear})).how == linear);
  network_cost slow = simple;
  slow.near.latency = 100'000'000'000;
  tuning.set(slow);
  CHECK(tuning.choose(call, open, some).how == linear);  // two messages one after the other
  tuning.set(busy);

  // A long buffer down a chain goes in segments, in enough lanes to fill the way.
  call = {collective::broadcast, 64 << 20, 8};
  const plan by = tuning.choose(call, open, of({chain, binomial_tree}));
  CHECK(by.how == chain);
  CHECK(by.segment > 0);
  CHECK(by.segment <= 1 << 20);
  CHECK(by.lanes > 1);
  // What is asked for stays.
  const plan kept = tuning.choose(call, {chain, 12'345, 0, 7}, of({chain}));
  CHECK((kept.segment == 12'345 && kept.radix == 7));
  // Also an algorithm without pieces uses a lane.
  CHECK(tuning.choose({collective::all_to_all, 1000, 5}, open, of({bruck})).lanes == 1);
}

TEST_CASE("no choice is worse than another of the table") {
  colls::tuning tuning;
  tuning.set(simple);
  for (const pair& each : table()) {
    for (const int p : {2, 5, 16, 64}) {
      for (std::uint64_t bytes = 8; bytes <= 256u << 20; bytes *= 8) {
        const question call{each.what, bytes, p};
        const plan open{algorithm::automatic, 0, 0, 0};
        const colls::explanation all = tuning.explain(call, open, of(each.algorithms));
        CHECK(all.all.size() == each.algorithms.size());
        CHECK(all.chosen == tuning.choose(call, open, of(each.algorithms)));
        for (const colls::prediction& other : all.all) {
          CHECK(all.all[0].takes.time <= other.takes.time);
        }
      }
    }
  }
}

TEST_CASE("where ranks outnumber cores, what all of them do counts, and every wait for a turn") {
  network_cost crowded = simple;
  crowded.near.overhead = 100'000;
  crowded.far = {10'000'000, 100'000, 1'024'000};
  crowded.cores = 2;
  crowded.turn = 200'000;
  using enum algorithm;
  const auto us = [&](collective what, std::uint64_t bytes, int on_host, algorithm how) {
    return static_cast<double>(costs(crowded, what, bytes, 8, on_host).of({how}).time) * 1e-6;
  };
  // 14 messages of 2 x 1.1 us on two cores; two waits of 1 us, and for three others of 0.2 us each.
  CHECK(us(collective::all_reduce, 1000, 8, linear) == doctest::Approx(15.4 + 2 * 1.6));
  // 24 messages, three waits.
  CHECK(us(collective::all_reduce, 1000, 8, recursive_doubling) == doctest::Approx(26.4 + 3 * 1.6));
  crowded.reduce_per_kib = 1'024'000;
  // Who waits for the root waits for its sums.
  CHECK(us(collective::all_reduce, 1000, 8, linear) == doctest::Approx(15.4 + 2 * 1.6 + 7));
  // 24 messages, 7 us of bytes from each rank, and all of these copied once more.
  CHECK(us(collective::all_gather, 8000, 8, circulant) ==
        doctest::Approx((2 * (24 * 0.1 + 56) + 64) / 2 + 3 * 1.6 + 8));
  // With almost a core for each the root's own work is longer: 7 messages to take in and sum up, 7
  // to send.
  crowded.cores = 7;
  CHECK(us(collective::all_reduce, 1000, 8, linear) == doctest::Approx(8.2 + 7 + 8.8));
  crowded.cores = 2;
  crowded.reduce_per_kib = 0;
  // Two hosts have twice as many cores; a wait for the other one is as long as its link.
  CHECK(us(collective::all_reduce, 1000, 4, recursive_doubling) ==
        doctest::Approx(13.2 + 2 * 1.2 + 11.2));
  // Each of two has its core.
  CHECK(us(collective::all_reduce, 1000, 2, recursive_doubling) ==
        doctest::Approx(2.2 + 11.2 + 11.2));
  crowded.cores = 8;
  CHECK(us(collective::all_reduce, 1000, 8, recursive_doubling) == doctest::Approx(3 * 2.2));

  crowded.cores = 2;
  crowded.lent_per_kib = 102'400;
  // 56 messages that are found together are as much work as 19, and bring 56 us of bytes.
  CHECK(us(collective::all_reduce, 1000, 8, direct) == doctest::Approx(1.9 + 56 + 1.6));
  // 112 words as much as 38; each rank has 1.6 us to do where it lies, and begins a turn later.
  CHECK(us(collective::all_reduce, 8000, 8, direct) ==
        doctest::Approx((2 * (3.8 + 56 * 0.024) + 8 * 1.6) / 2 + 2 * 1.6 + 0.6));

  colls::tuning tuning;
  const plan open{automatic, 0, 0, 0};
  const algorithm_set some = of({linear, ring, recursive_doubling, recursive_halving});
  const question call{collective::all_reduce, 8, 8, true, colls::order::any, true};
  network_cost tcp = colls::tcp_cost;
  for (const int cores : {0, 8}) {
    tcp.cores = cores;
    tuning.set(tcp);
    CHECK(tuning.choose(call, open, some).how == recursive_doubling);
  }
  tcp.cores = 2;
  tuning.set(tcp);
  CHECK(tuning.choose(call, open, some).how == linear);

  // Through shared memory one round of all with all, while what all of them copy is short.
  network_cost shm = colls::hybrid_cost;
  const auto chosen = [&](collective what, std::uint64_t bytes, int cores) {
    shm.cores = cores;
    tuning.set(shm);
    const question about{what, bytes, 8, true, colls::order::any, true};
    return tuning.choose(about, open, of({linear, recursive_doubling, binomial_tree, direct})).how;
  };
  CHECK(chosen(collective::all_reduce, 1024, 8) == recursive_doubling);
  CHECK(chosen(collective::all_reduce, 1024, 2) == direct);
  CHECK(chosen(collective::reduce, 4096, 2) == linear);
}

TEST_CASE("between hosts, what crosses once for each host wins") {
  network_cost two_levels = simple;
  two_levels.near = {250'000, 100'000, 20'000};
  two_levels.far = {10'000'000, 100'000, 80'000};
  two_levels.host_per_kib = 80'000;
  colls::tuning tuning;
  const plan open{algorithm::automatic, 0, 0, 0};
  const question call{collective::all_reduce, 1 << 16, 48, true, colls::order::any, true};
  const algorithm_set some = of({algorithm::recursive_halving, algorithm::circulant,
                                 algorithm::ring, algorithm::hierarchical});
  tuning.set(two_levels, 8);
  CHECK(tuning.choose(call, open, some).how == algorithm::hierarchical);
  tuning.set(two_levels);
  CHECK(tuning.choose(call, open, some).how != algorithm::hierarchical);
}

TEST_CASE("children on other hosts are paid for") {
  network_cost two_levels = simple;
  two_levels.near = {1'000'000, 0, 0};
  two_levels.far = {10'000'000, 0, 10 * 1'024'000};
  two_levels.host_per_kib = 10 * 1'024'000;
  const auto us = [&](collective what, std::uint64_t bytes, int p, int on_host, int radix) {
    const plan by{algorithm::knomial_tree, 0, 1, radix};
    return static_cast<double>(costs(two_levels, what, bytes, p, on_host).of(by).time) * 1e-6;
  };
  // One edge between two hosts, whether their ranks are the children of one level or of two.
  CHECK(us(collective::broadcast, 100, 8, 4, 4) == doctest::Approx(10 + 1 + 1));
  CHECK(us(collective::broadcast, 100, 8, 4, 2) == doctest::Approx(10 + 1 + 1 + 1));
  // Four children on the other host, whose link takes one after another.
  CHECK(us(collective::broadcast, 100, 8, 4, 8) == doctest::Approx(10 + 4 * 1));
  // Four are on other hosts than their parents, two of whom are on other hosts than theirs.
  CHECK(us(collective::broadcast, 100, 9, 4, 3) == doctest::Approx(2 * (10 + 1) + 2 * 1));
  // Long ones are asked for one after another.
  CHECK(us(collective::reduce, 200'000, 4, 4, 4) == doctest::Approx(3 * 1));
  CHECK(us(collective::reduce, 1'000, 4, 4, 4) == doctest::Approx(1));
  CHECK(us(collective::reduce, 200'000, 4, 1, 4) == doctest::Approx(3 * (10 + 2000)));
  // The last host has fewer ranks, and the others' edges stay where they are.
  CHECK(us(collective::broadcast, 100, 7, 4, 2) == doctest::Approx(10 + 1 + 1));
}

TEST_CASE("explain tells what a call does, alike on all ranks") {
  communicators all(4);
  for (const std::uint64_t count : {2u, 50'000u}) {
    const colls::explanation told = all[0].explain(collective::all_reduce, 4 * count);
    CHECK(told.chosen == all[3].explain(collective::all_reduce, 4 * count).chosen);
    CHECK(told.all.size() == 8);
    std::vector<std::vector<int>> data(4, std::vector<int>(count));
    colls::operation<> left = all[0].all_reduce(data[0]);
    // A rank that pins what the others choose agrees with them.
    colls::operation<> pinned =
        all[1].all_reduce(data[1], {.algorithm = told.chosen.how, .segment = told.chosen.segment});
    colls::operation<> right = all[2].all_reduce(data[2]);
    colls::operation<> last = all[3].all_reduce(data[3]);
    for (colls::operation<>* each : {&left, &pinned, &right, &last}) all.wait(*each);
  }
  const colls::explanation one =
      all[0].explain(collective::broadcast, 100, {.algorithm = algorithm::chain});
  CHECK(one.chosen.how == algorithm::chain);
  CHECK(one.all.size() == 1);
  CHECK(all[0].explain(collective::reduce_scatter, 8, {.order = colls::order::rank}).all.size() ==
        1);
  CHECK(all[0].explain(collective::send, 8).all.empty());
  const std::string text = to_text(all[0].explain(collective::all_reduce, 8));
  CHECK(text.find("all_reduce of 8 B over 4 ranks: ") == 0);
  CHECK(text.find("\n  recursive_halving ") != std::string::npos);
}

TEST_CASE("costs that are set on all ranks change the choice") {
  communicators all(3);
  const plan before = all[0].explain(collective::broadcast, 1 << 20).chosen;
  for (int rank = 0; rank < 3; ++rank) all[rank].set_costs(simple);
  const plan after = all[0].explain(collective::broadcast, 1 << 20).chosen;
  CHECK(before != after);
  std::vector<std::vector<int>> data(3, std::vector<int>(1 << 18));
  data[1][7] = 5;
  all.all([&](colls::inproc::communicator& comm) {
    return comm.broadcast(data[static_cast<std::size_t>(comm.rank())], 1);
  });
  CHECK(data[2][7] == 5);
}

TEST_CASE("costs are measured alike on all ranks, and say what is chosen") {
  for (const int p : {1, 2, 3, 5}) {
    communicators all(p);
    const network_cost before = all[0].tuning().costs();
    all.all([](colls::inproc::communicator& comm) { return comm.measure(); });
    const network_cost after = all[0].tuning().costs();
    for (int rank = 1; rank < p; ++rank) CHECK(all[rank].tuning().costs() == after);
    CHECK(after.least_segment == before.least_segment);
    CHECK((after.near.latency + after.near.overhead > 0) == (p > 1));
    CHECK((after.near.per_kib > 0) == (p > 1));
    CHECK(after.far == link_cost{});
    all.check_good();
  }
}

}  // namespace
