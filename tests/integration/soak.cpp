// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include <algorithm>
#include <random>

#include "../support/communicators.hpp"
#include "../support/soak.hpp"

// A million operations in a row on each of 4 ranks leave memory, descriptors and threads as they
// were, and no operation allocates. A thousand operations at once need bounded memory.

namespace {

using colls::inproc::communicator;
using namespace soak;

TEST_CASE("a million operations in a row leave everything as it was") {
  for (const int p : {2, 3, 4}) {
    CAPTURE(p);
#if defined(SANITIZED)
    constexpr int operations = 10'000;
#else
    const int operations = p == 4 ? 1'000'000 : 100'000;  // of each rank
#endif
    communicators all(p);
    std::vector<buffers> data;
    for (int rank = 0; rank < p; ++rank) data.emplace_back(p, p == 3 ? 1000 : 10);
    const auto run = [&](int rounds) {
      std::vector<task<>> ranks;
      const auto rank_main = [&](int rank) -> task<> {
        for (int i = 0; i < rounds; ++i) {
          co_await round(all[rank], data[static_cast<std::size_t>(rank)], i);
        }
      };
      for (int rank = 0; rank < p; ++rank) ranks.push_back(rank_main(rank));
      all.wait(colls::when_all(std::move(ranks)));
    };
    run(200);
    const used before;
    const std::size_t allocations_before = allocations;
    run(operations / calls_in_a_round);
    // The test itself allocates the vector of tasks and the coroutine frames.
    CHECK(allocations - allocations_before < 10);
    const used after;
    CHECK(after.resident < before.resident + (1 << 20));
    CHECK(after.descriptors == before.descriptors);
    CHECK(after.threads == before.threads);
  }
}

TEST_CASE("a thousand operations in flight, awaited in any order, need little memory") {
  constexpr int ranks = 4;
  constexpr int calls = 1000;
  constexpr std::size_t n = 64 * 1024 / sizeof(float);
  communicators all(ranks);
  std::vector<std::vector<float>> data;
  for (int i = 0; i < ranks * calls; ++i) data.emplace_back(n, static_cast<float>(i));
  const used before;
  std::size_t highest = 0;
  std::vector<task<>> mains;
  const auto rank_main = [&](int rank) -> task<> {
    std::mt19937 random(static_cast<unsigned>(rank) + 17);
    std::vector<operation<>> kept;
    std::vector<int> order;
    for (int i = 0; i < calls; ++i) {
      auto& mine = data[static_cast<std::size_t>(rank * calls + i)];
      switch (i % 3) {
        case 0:
          kept.push_back(all[rank].all_reduce(mine));
          break;
        case 1:
          kept.push_back(all[rank].all_reduce<algorithm::recursive_doubling>(mine));
          break;
        default:
          kept.push_back(all[rank].all_reduce(mine, colls::average{}));
          break;
      }
      order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const int i : order) {
      co_await kept[static_cast<std::size_t>(i)];
      highest = std::max(highest, resident_bytes());
    }
  };
  for (int rank = 0; rank < ranks; ++rank) mains.push_back(rank_main(rank));
  all.wait(colls::when_all(std::move(mains)));
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < calls; ++i) {
      const auto& mine = data[static_cast<std::size_t>(rank * calls + i)];
      const float sum = static_cast<float>(4 * i + 6 * calls);
      const float wanted = i % 3 == 2 ? sum / 4 : sum;
      CHECK(std::all_of(mine.begin(), mine.end(), [=](float x) { return x == wanted; }));
    }
  }
#if !defined(SANITIZED)
  CHECK(highest < before.resident + 64 * (1 << 20));  // of all ranks together
#endif
  MESSAGE("memory beyond the buffers: ", (highest - std::min(highest, before.resident)) >> 10,
          " KiB");
}

}  // namespace
