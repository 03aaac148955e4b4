// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/algorithm/table.hpp>
#include <colls/selection/cost_model.hpp>
#include <colls/selection/tuning.hpp>

#include "../support/closed_forms.hpp"
#include "../support/communicators.hpp"

#include <initializer_list>
#include <stdexcept>

// Tests the predictions and choices of tuning, and that comm.explain reports what a call does.

namespace {

using colls::algorithm;
using colls::algorithm_candidates;
using colls::algorithm_choice;
using colls::algorithm_info;
using colls::collective;
using colls::cost;
using colls::cost_model;
using colls::link_cost;
using colls::network_cost;
using colls::selection_query;

constexpr network_cost simple{.near = {1'000'000, 0, 1'024'000},  // 1 us, 1 ns a byte
                              .far = {},
                              .host_per_kib = 0,
                              .reduce_per_kib = 0,
                              .min_segment = 4096,
                              .one_thread = false};

template <auto Algorithm>
constexpr algorithm_info description = colls::detail::info_of<Algorithm>();

/// Returns the description of an algorithm. Of two algorithms `direct`, returns the one for ranks
/// that access each other's memory.
const algorithm_info& info_of(collective coll, algorithm algo) {
  const algorithm_info* found = nullptr;
  colls::detail::with_collective(coll, [&]<collective Coll>() {
    colls::detail::algorithms_of<Coll>().for_each([&]<auto Algorithm>() {
      if (Algorithm.id == algo && !Algorithm.needs.one_thread) found = &description<Algorithm>;
    });
  });
  if (found == nullptr) throw std::logic_error("no such algorithm");
  return *found;
}
algorithm_candidates set_of(collective coll, const std::initializer_list<algorithm>& list) {
  algorithm_candidates all;
  for (const algorithm algo : list) all.add(info_of(coll, algo));
  return all;
}
cost predict(const network_cost& net, collective coll, std::uint64_t bytes, int p, int on_host,
             const algorithm_choice& choice) {
  return cost_model(net, bytes, p, on_host).predict(info_of(coll, choice.id), choice);
}
double us_of(const cost& predicted) { return static_cast<double>(predicted.time) * 1e-6; }

struct pair {
  collective operation;
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
    for (const algorithm algo : each.algorithms) {
      for (const int p : {1, 2, 3, 4, 5, 7, 8, 13, 16, 24, 64}) {
        if (algo == algorithm::neighbour_exchange && p % 2 != 0) continue;
        for (const std::uint64_t chunk : {0u, 8u, 4096u, 100'000u}) {
          for (const algorithm_choice& choice :
               {algorithm_choice{algo, 0, 1, 2}, algorithm_choice{algo, 1000, 3, 4}}) {
            CAPTURE(name(each.operation));
            CAPTURE(name(algo));
            CAPTURE(p);
            CAPTURE(chunk);
            CAPTURE(choice.radix);
            const auto ranks = static_cast<std::uint64_t>(p);
            const std::uint64_t bytes = each.operation == collective::barrier ? 0 : chunk * ranks;
            const cost got = predict(simple, each.operation, bytes, p, p, choice);
            closed_forms::call call{colls::partition::blocks(chunk, p)};
            call.segment = choice.segment;
            call.lanes = choice.lanes;
            call.radix = choice.radix;
            call.has_windows = true;
            const auto want = closed_forms::of(each.operation, algo, call);
            REQUIRE(want.has_value());
            CHECK(got.messages == want->messages);
            if (each.operation != collective::barrier) CHECK(got.bytes == want->bytes);
            CHECK((got.time > 0) == (p > 1));
          }
        }
      }
    }
  }
}

TEST_CASE("times are those of the longest chain of messages") {
  const auto us = [](collective coll, std::uint64_t bytes, int p, const algorithm_choice& choice) {
    return us_of(predict(simple, coll, bytes, p, p, choice));
  };
  using enum algorithm;
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
  // Towards a root, a long message is cleared to send when the one before has arrived.
  CHECK(us(collective::gather, 600'000, 3, {binomial_tree}) == doctest::Approx(402.0));
  CHECK(us(collective::scatter, 600'000, 3, {binomial_tree}) == doctest::Approx(401.0));
  // A root sends one message after another, and receives several at the same time.
  network_cost busy = simple;
  busy.near.overhead = 500'000;
  CHECK(us_of(predict(busy, collective::gather, 8000, 8, 8, {linear})) == doctest::Approx(9.0));
  CHECK(us_of(predict(busy, collective::scatter, 8000, 8, 8, {linear})) == doctest::Approx(12.0));
}

TEST_CASE(
    "direct is priced as if all ranks exposed their buffers, or by its messages if they cannot") {
  network_cost with_windows = simple;
  with_windows.window_per_kib = 102'400;  // 0.1 ns a byte
  const auto by_direct = [&](collective coll, std::uint64_t bytes, int on_host) {
    return predict(with_windows, coll, bytes, 4, on_host, {algorithm::direct});
  };
  const auto us = [&](collective coll, std::uint64_t bytes) {
    return us_of(by_direct(coll, bytes, 4));
  };
  // Two rounds of 1 us, 0.12 us for the descriptors, and the bytes that a rank works on.
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
  CHECK(by_direct(collective::all_reduce, n, 4).messages == 24);
  CHECK(by_direct(collective::all_reduce, n, 4).bytes == 12 * 24);
  CHECK(by_direct(collective::broadcast, n, 4).messages == 6);
  CHECK(by_direct(collective::reduce, n, 4).messages == 6);
  // Between hosts no buffer is exposed.
  CHECK(by_direct(collective::all_reduce, n, 2).bytes == 12 * 24 + 2 * 12 * 20'000);
  // Short vectors take one round: 1 us, and three messages of 1 ns a byte.
  CHECK(us(collective::all_reduce, 1000) == doctest::Approx(4.0));
  CHECK(us(collective::broadcast, 1000) == doctest::Approx(4.0));
  CHECK(us(collective::all_gather, 1000) == doctest::Approx(1.75));
  CHECK(by_direct(collective::scan, 1000, 4).messages == 6);
  CHECK(by_direct(collective::reduce, 1000, 4).bytes == 3000);
}

TEST_CASE("the least predicted time is chosen, with the best segments and lanes") {
  colls::tuning tuning;
  network_cost busy = simple;
  busy.near.overhead = 100'000;
  tuning.set(busy);
  using enum algorithm;
  const algorithm_candidates some =
      set_of(collective::all_reduce, {linear, ring, recursive_doubling, circulant, double_tree});
  const algorithm_choice open{automatic, 0, 0, 0};
  selection_query call{collective::all_reduce, 8, 64, true, colls::order::any, true};
  CHECK(tuning.choose(call, open, some).choice.id == recursive_doubling);
  call.bytes = 64 << 10;
  CHECK(tuning.choose(call, open, some).choice.id == circulant);
  CHECK(tuning.choose(call, open, set_of(collective::all_reduce, {linear})).choice.id == linear);
  network_cost slow = simple;
  slow.near.latency = 100'000'000'000;
  tuning.set(slow);
  CHECK(tuning.choose(call, open, some).choice.id == linear);  // two messages one after the other
  tuning.set(busy);

  // A long buffer goes down a chain in segments, in enough lanes to keep all ranks busy.
  call = {collective::broadcast, 64 << 20, 8};
  const algorithm_choice choice =
      tuning.choose(call, open, set_of(collective::broadcast, {chain, binomial_tree})).choice;
  CHECK(choice.id == chain);
  CHECK(choice.segment > 0);
  CHECK(choice.segment <= 1 << 20);
  CHECK(choice.lanes > 1);
  // Parameters that are set stay.
  const algorithm_choice kept =
      tuning.choose(call, {chain, 12'345, 0, 7}, set_of(collective::broadcast, {chain})).choice;
  CHECK((kept.segment == 12'345 && kept.radix == 7));
  // An algorithm without segments uses one lane.
  const algorithm_candidates only_bruck = set_of(collective::all_to_all, {bruck});
  CHECK(tuning.choose({collective::all_to_all, 1000, 5}, open, only_bruck).choice.lanes == 1);
}

TEST_CASE("the time of a native collective lies on lines through the measured ones") {
  colls::native_cost cost;
  CHECK(!cost.is_known());
  cost = {{1'000'000, 5'000'000, 100'000'000, 2'000'000'000}};
  CHECK(cost.is_known());
  CHECK(cost.time(0) == 1'000'000);
  CHECK(cost.time(8) == 1'000'000);
  CHECK(cost.time(4 << 10) == doctest::Approx(3'000'000).epsilon(0.01));
  CHECK(cost.time(8 << 10) == doctest::Approx(5'000'000).epsilon(0.01));
  CHECK(cost.time(256 << 10) == doctest::Approx(100'000'000).epsilon(0.01));
  // Longer vectors continue the last line, as far as numbers go.
  const auto per_byte = 1'900'000'000 / ((4 << 20) - (256 << 10));
  CHECK(cost.time(8 << 20) == doctest::Approx(2e9 + (4 << 20) * double(per_byte)).epsilon(0.01));
  CHECK(cost.time(UINT64_MAX) == std::uint64_t{1} << 62);
  // A shorter time for a longer vector is noise.
  cost.times[2] = 10;
  CHECK(cost.time(100 << 10) == 5'000'000);
  // What is no collective with algorithms has no time.
  colls::network_cost net;
  net.native[0] = cost;
  CHECK(net.native_of(collective::barrier).is_known());
  CHECK(!net.native_of(collective::exscan).is_known());
  CHECK(!net.native_of(collective::none).is_known());
  CHECK(!net.native_of(collective::repair).is_known());
}

TEST_CASE("no choice is worse than another of the table") {
  colls::tuning tuning;
  tuning.set(simple);
  for (const pair& each : table()) {
    for (const int p : {2, 5, 16, 64}) {
      for (std::uint64_t bytes = 8; bytes <= 256u << 20; bytes *= 8) {
        const selection_query call{each.operation, bytes, p};
        const algorithm_choice open{algorithm::automatic, 0, 0, 0};
        const colls::explanation all =
            tuning.explain(call, open, set_of(each.operation, each.algorithms));
        CHECK(all.predictions.size() == each.algorithms.size());
        CHECK(all.chosen ==
              tuning.choose(call, open, set_of(each.operation, each.algorithms)).choice);
        for (const colls::prediction& other : all.predictions) {
          CHECK(all.predictions[0].cost.time <= other.cost.time);
        }
      }
    }
  }
}

TEST_CASE(
    "where ranks outnumber cores, predictions include the work of all ranks and waits for cores") {
  network_cost oversubscribed = simple;
  oversubscribed.near.overhead = 100'000;
  oversubscribed.far = {10'000'000, 100'000, 1'024'000};
  oversubscribed.cores = 2;
  oversubscribed.time_slice = 200'000;
  using enum algorithm;
  const auto us = [&](collective coll, std::uint64_t bytes, int on_host, algorithm algo) {
    return us_of(predict(oversubscribed, coll, bytes, 8, on_host, {algo}));
  };
  // 14 messages of 2 x 1.1 us on two cores; two waits of 1 us, and for three others of 0.2 us each.
  CHECK(us(collective::all_reduce, 1000, 8, linear) == doctest::Approx(15.4 + 2 * 1.6));
  // 24 messages, three waits.
  CHECK(us(collective::all_reduce, 1000, 8, recursive_doubling) == doctest::Approx(26.4 + 3 * 1.6));
  oversubscribed.reduce_per_kib = 1'024'000;
  // The ranks that wait for the root wait for its sums.
  CHECK(us(collective::all_reduce, 1000, 8, linear) == doctest::Approx(15.4 + 2 * 1.6 + 7));
  // 24 messages, 7 us of bytes from each rank, all copied once more.
  CHECK(us(collective::all_gather, 8000, 8, circulant) ==
        doctest::Approx((2 * (24 * 0.1 + 56) + 64) / 2 + 3 * 1.6 + 8));
  // With almost a core for each rank the root's own work is longer: it receives and sums 7
  // messages, and sends 7.
  oversubscribed.cores = 7;
  CHECK(us(collective::all_reduce, 1000, 8, linear) == doctest::Approx(8.2 + 7 + 8.8));
  oversubscribed.cores = 2;
  oversubscribed.reduce_per_kib = 0;
  // Two hosts have twice as many cores. A wait for the other host lasts as long as a message from
  // it.
  CHECK(us(collective::all_reduce, 1000, 4, recursive_doubling) ==
        doctest::Approx(13.2 + 2 * 1.2 + 11.2));
  // Each of two ranks on a host has its own core.
  CHECK(us(collective::all_reduce, 1000, 2, recursive_doubling) ==
        doctest::Approx(2.2 + 11.2 + 11.2));
  oversubscribed.cores = 8;
  CHECK(us(collective::all_reduce, 1000, 8, recursive_doubling) == doctest::Approx(3 * 2.2));

  oversubscribed.cores = 2;
  oversubscribed.window_per_kib = 102'400;
  // 56 messages that arrive together are as much work as 19, and add 56 us for their bytes.
  CHECK(us(collective::all_reduce, 1000, 8, direct) == doctest::Approx(1.9 + 56 + 1.6));
  // 112 messages are as much work as 38; each rank has 1.6 us of work in place, and begins a time
  // slice later.
  CHECK(us(collective::all_reduce, 8000, 8, direct) ==
        doctest::Approx((2 * (3.8 + 56 * 0.024) + 8 * 1.6) / 2 + 2 * 1.6 + 0.6));

  colls::tuning tuning;
  const algorithm_choice open{automatic, 0, 0, 0};
  const algorithm_candidates some =
      set_of(collective::all_reduce, {linear, ring, recursive_doubling, recursive_halving});
  const selection_query call{collective::all_reduce, 8, 8, true, colls::order::any, true};
  network_cost tcp = colls::tcp_cost;
  for (const int cores : {0, 8}) {
    tcp.cores = cores;
    tuning.set(tcp);
    CHECK(tuning.choose(call, open, some).choice.id == recursive_doubling);
  }
  tcp.cores = 2;
  tuning.set(tcp);
  CHECK(tuning.choose(call, open, some).choice.id == linear);

  // Through shared memory one round of all ranks with all others, as long as the vectors are short.
  network_cost shm = colls::hybrid_cost;
  const auto chosen = [&](collective coll, std::uint64_t bytes, int cores) {
    shm.cores = cores;
    tuning.set(shm);
    const selection_query query{coll, bytes, 8, true, colls::order::any, true};
    const algorithm tree = coll == collective::reduce ? binomial_tree : recursive_doubling;
    return tuning.choose(query, open, set_of(coll, {linear, tree, direct})).choice.id;
  };
  CHECK(chosen(collective::all_reduce, 1024, 8) == recursive_doubling);
  CHECK(chosen(collective::all_reduce, 1024, 2) == direct);
  CHECK(chosen(collective::reduce, 4096, 2) == linear);
}

TEST_CASE("between hosts, algorithms that cross once for each host win") {
  network_cost two_levels = simple;
  two_levels.near = {250'000, 100'000, 20'000};
  two_levels.far = {10'000'000, 100'000, 80'000};
  two_levels.host_per_kib = 80'000;
  colls::tuning tuning;
  const algorithm_choice open{algorithm::automatic, 0, 0, 0};
  const selection_query call{collective::all_reduce, 1 << 16, 48, true, colls::order::any, true};
  const algorithm_candidates some =
      set_of(collective::all_reduce, {algorithm::recursive_halving, algorithm::circulant,
                                      algorithm::ring, algorithm::hierarchical});
  tuning.set(two_levels, 8);
  CHECK(tuning.choose(call, open, some).choice.id == algorithm::hierarchical);
  tuning.set(two_levels);
  CHECK(tuning.choose(call, open, some).choice.id != algorithm::hierarchical);
}

TEST_CASE("trees whose children are on other hosts cost more") {
  network_cost two_levels = simple;
  two_levels.near = {1'000'000, 0, 0};
  two_levels.far = {10'000'000, 0, 10 * 1'024'000};
  two_levels.host_per_kib = 10 * 1'024'000;
  const auto us = [&](collective coll, std::uint64_t bytes, int p, int on_host, int radix) {
    const algorithm_choice choice{algorithm::knomial_tree, 0, 1, radix};
    return us_of(predict(two_levels, coll, bytes, p, on_host, choice));
  };
  // One edge between two hosts, with the ranks as children of one level or of two.
  CHECK(us(collective::broadcast, 100, 8, 4, 4) == doctest::Approx(10 + 1 + 1));
  CHECK(us(collective::broadcast, 100, 8, 4, 2) == doctest::Approx(10 + 1 + 1 + 1));
  // Four children on the other host, whose link transfers one message after another.
  CHECK(us(collective::broadcast, 100, 8, 4, 8) == doctest::Approx(10 + 4 * 1));
  // Four ranks are on other hosts than their parents; two of these parents are on other hosts than
  // their own.
  CHECK(us(collective::broadcast, 100, 9, 4, 3) == doctest::Approx(2 * (10 + 1) + 2 * 1));
  // Long messages are cleared to send one after another.
  CHECK(us(collective::reduce, 200'000, 4, 4, 4) == doctest::Approx(3 * 1));
  CHECK(us(collective::reduce, 1'000, 4, 4, 4) == doctest::Approx(1));
  CHECK(us(collective::reduce, 200'000, 4, 1, 4) == doctest::Approx(3 * (10 + 2000)));
  // The last host has fewer ranks, and the others' edges stay where they are.
  CHECK(us(collective::broadcast, 100, 7, 4, 2) == doctest::Approx(10 + 1 + 1));
}

TEST_CASE("explain reports what a call does, equally on all ranks") {
  communicators all(4);
  for (const std::uint64_t count : {2u, 50'000u}) {
    const colls::explanation explained = all[0].explain(collective::all_reduce, 4 * count);
    CHECK(explained.chosen == all[3].explain(collective::all_reduce, 4 * count).chosen);
    CHECK(explained.predictions.size() == 8);
    std::vector<std::vector<int>> data(4, std::vector<int>(count));
    colls::operation<> left = all[0].all_reduce(data[0]);
    // A rank that pins what the others choose agrees with them.
    colls::operation<> pinned = all[1].all_reduce(
        data[1], {.algorithm = explained.chosen.id, .segment = explained.chosen.segment});
    colls::operation<> right = all[2].all_reduce(data[2]);
    colls::operation<> last = all[3].all_reduce(data[3]);
    for (colls::operation<>* each : {&left, &pinned, &right, &last}) all.wait(*each);
  }
  const colls::explanation one =
      all[0].explain(collective::broadcast, 100, {.algorithm = algorithm::chain});
  CHECK(one.chosen.id == algorithm::chain);
  CHECK(one.predictions.size() == 1);
  CHECK(all[0]
            .explain(collective::reduce_scatter, 8, {.order = colls::order::rank})
            .predictions.size() == 1);
  CHECK(all[0].explain(collective::send, 8).predictions.empty());
  const std::string text = to_text(all[0].explain(collective::all_reduce, 8));
  CHECK(text.find("all_reduce of 8 B over 4 ranks: ") == 0);
  CHECK(text.find("\n  recursive_halving ") != std::string::npos);
}

TEST_CASE("costs that are set on all ranks change the choice") {
  communicators all(3);
  const algorithm_choice before = all[0].explain(collective::broadcast, 1 << 20).chosen;
  for (int rank = 0; rank < 3; ++rank) all[rank].set_costs(simple);
  const algorithm_choice after = all[0].explain(collective::broadcast, 1 << 20).chosen;
  CHECK(before != after);
  std::vector<std::vector<int>> data(3, std::vector<int>(1 << 18));
  data[1][7] = 5;
  all.all([&](colls::inproc::communicator& comm) {
    return comm.broadcast(data[static_cast<std::size_t>(comm.rank())], 1);
  });
  CHECK(data[2][7] == 5);
}

TEST_CASE("costs are measured equally on all ranks, and determine the choice") {
  for (const int p : {1, 2, 3, 5}) {
    communicators all(p);
    const network_cost before = all[0].tuning().costs();
    all.all([](colls::inproc::communicator& comm) { return comm.measure(); });
    const network_cost after = all[0].tuning().costs();
    for (int rank = 1; rank < p; ++rank) CHECK(all[rank].tuning().costs() == after);
    CHECK(after.min_segment == before.min_segment);
    CHECK((after.near.latency + after.near.overhead > 0) == (p > 1));
    CHECK((after.near.per_kib > 0) == (p > 1));
    CHECK(after.far == link_cost{});
    all.check_good();
  }
}

}  // namespace
