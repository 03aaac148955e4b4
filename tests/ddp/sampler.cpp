// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/ddp/sampler.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace {

using namespace colls::ddp;
using indices = std::vector<std::size_t>;

indices counted(std::size_t n) {
  indices all(n);
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

indices sorted(indices some) {
  std::sort(some.begin(), some.end());
  return some;
}

// The samples that a rank of `ranks` has seen after `steps` steps.
indices seen(sampler_state start, int rank, int ranks, std::uint64_t steps) {
  batch_sampler sampler(start);
  indices all;
  for (; steps > 0; --steps, sampler.advance()) {
    const auto mine = sampler.batch(rank, ranks);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  return all;
}

constexpr bool each_rank_has_its_own() {
  const batch_sampler sampler({.samples = 10, .batch = 7, .seed = 3});
  const auto all = sampler.batch();
  std::size_t index = 0;
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::size_t sample : sampler.batch(rank, 3)) {
      if (sample != all[index++]) return false;
    }
  }
  return index == 7;
}
static_assert(each_rank_has_its_own());
static_assert(shuffled(5, 1, 0) != shuffled(5, 1, 1) && shuffled(5, 1) != shuffled(5, 2));
static_assert(shuffled(0, 1).empty() && shuffled(1, 1).front() == 0);

}  // namespace

TEST_CASE("the order of a seed never changes") {
  CHECK(shuffled(10, 0) == indices{5, 4, 0, 9, 1, 6, 8, 7, 2, 3});
  CHECK(shuffled(10, 42, 3) == indices{8, 2, 4, 6, 0, 7, 9, 5, 3, 1});
  random_bits random(7);
  CHECK(random.next() == 11241344834629033336U);
}

TEST_CASE("an order has every sample once, and every sample comes to every place") {
  CHECK(sorted(shuffled(1000, 5, 2)) == counted(1000));
  // 24,000 shuffles of 4: each of the 24 orders 1000 times, give or take 5 standard deviations.
  std::vector<int> times(256, 0);
  for (std::uint64_t seed = 0; seed < 24'000; ++seed) {
    const indices order = shuffled(4, seed);
    ++times[order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3]];
  }
  CHECK(std::count(times.begin(), times.end(), 0) == 256 - 24);
  for (const int count : times) CHECK((count == 0 || (count > 845 && count < 1155)));
}

TEST_CASE("random numbers below a bound that does not divide 2^64 favour none") {
  random_bits random(1);
  const std::uint64_t bound = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 62);
  int low = 0;  // by remainders alone the lower third would come half of the time
  for (int i = 0; i < 9000; ++i) low += random.below(bound) < bound / 3;
  CHECK(low > 2750);
  CHECK(low < 3250);
  for (int i = 0; i < 1000; ++i) {
    CHECK(random.below(1) == 0);
    const double unit = random.unit();
    CHECK((unit >= 0 && unit < 1));
  }
}

TEST_CASE("a step has the same samples for every number of ranks") {
  const sampler_state from{.samples = 103, .batch = 10, .seed = 9};
  batch_sampler sampler(from);
  CHECK(sampler.steps() == 11);
  indices epoch;
  for (std::uint64_t step = 0; step < 11; ++step, sampler.advance()) {
    const indices all(sampler.batch().begin(), sampler.batch().end());
    CHECK(all.size() == (step == 10 ? 3 : 10));
    for (const int ranks : {1, 2, 3, 4, 7, 16}) {
      indices together;
      for (int rank = 0; rank < ranks; ++rank) {
        const auto mine = sampler.batch(rank, ranks);
        together.insert(together.end(), mine.begin(), mine.end());
      }
      CHECK(together == all);
    }
    epoch.insert(epoch.end(), all.begin(), all.end());
  }
  CHECK(sorted(epoch) == counted(103));
  CHECK(epoch == shuffled(103, 9, 0));
  CHECK(sampler.state() == sampler_state{103, 10, 9, 1, 0});
  const indices second(sampler.batch().begin(), sampler.batch().end());
  const indices order = shuffled(103, 9, 1);
  CHECK(second == indices(order.begin(), order.begin() + 10));
}

TEST_CASE("a rank may have no sample of a short last batch") {
  batch_sampler sampler({.samples = 9, .batch = 4, .seed = 1, .step = 2});
  CHECK(sampler.batch().size() == 1);
  CHECK(sampler.batch(0, 4).size() == 1);
  CHECK(sampler.batch(3, 4).empty());
}

TEST_CASE("a sampler goes on from its state, with any number of ranks") {
  const sampler_state from{.samples = 50, .batch = 8, .seed = 4};
  const indices full = seen(from, 0, 1, 20);
  batch_sampler first(from);
  for (int step = 0; step < 9; ++step) first.advance();
  CHECK(first.state() == sampler_state{50, 8, 4, 1, 2});
  const indices rest = seen(first.state(), 0, 1, 11);
  CHECK(
      std::equal(rest.begin(), rest.end(), full.end() - static_cast<std::ptrdiff_t>(rest.size())));
}

TEST_CASE("a sampler refuses an invalid state") {
  const auto refused = [](sampler_state state) {
    try {
      const batch_sampler sampler(state);
    } catch (const colls::error& thrown) {
      return thrown.code() == colls::errc::invalid_argument;
    }
    return false;
  };
  CHECK(refused({.samples = 0, .batch = 1}));
  CHECK(refused({.samples = 1, .batch = 0}));
  CHECK(refused({.samples = 10, .batch = 5, .step = 2}));
  CHECK_FALSE(refused({.samples = 10, .batch = 5, .step = 1}));
  CHECK_FALSE(refused({.samples = 1, .batch = UINT64_MAX}));
}

TEST_CASE("shards are equally long: padded from the front, or cut") {
  const indices order = shuffled(10, 8, 2);
  for (const int ranks : {1, 2, 3, 4, 9, 10, 11, 25}) {
    const auto n = static_cast<std::size_t>(ranks);
    const std::size_t longer = (10 + n - 1) / n;
    for (int rank = 0; rank < ranks; ++rank) {
      const indices padded = shard_indices(10, rank, ranks, uneven::pad, 8, 2);
      const indices cut = shard_indices(10, rank, ranks, uneven::drop_last, 8, 2);
      REQUIRE(padded.size() == longer);
      REQUIRE(cut.size() == 10 / n);
      const auto first = static_cast<std::size_t>(rank);
      for (std::size_t i = 0; i < longer; ++i) CHECK(padded[i] == order[(first + i * n) % 10]);
      for (std::size_t i = 0; i < cut.size(); ++i) CHECK(cut[i] == order[first + i * n]);
    }
  }
  CHECK(shard_indices(0, 2, 3, uneven::pad, 1).empty());
  CHECK_THROWS_AS(shard_indices(10, 3, 3, uneven::pad, 1), colls::error);
  CHECK_THROWS_AS(shard_indices(10, -1, 3, uneven::pad, 1), colls::error);
  CHECK_THROWS_AS(shard_indices(10, 0, 0, uneven::pad, 1), colls::error);
}
