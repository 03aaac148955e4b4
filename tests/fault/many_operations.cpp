// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Very many operations over tcp, at once and in a row: memory, descriptors and threads of each rank
// stay bounded.

#include "../soak.hpp"
#include "processes.hpp"

#include <cstdlib>
#include <numeric>
#include <random>

using namespace processes;
using soak::used;

namespace {

/// MANY_OPERATIONS sets another number for the long run.
int operations_in_a_row() {
  const char* const text = std::getenv("MANY_OPERATIONS");
#if defined(SANITIZED)
  constexpr int usual = 20'000;
#else
  constexpr int usual = 100'000;
#endif
  return text != nullptr ? std::atoi(text) : usual;
}

std::ptrdiff_t grown(std::size_t after, std::size_t before) {
  return static_cast<std::ptrdiff_t>(after) - static_cast<std::ptrdiff_t>(before);
}

}  // namespace

TEST_CASE("a thousand operations of 64 KiB in flight, awaited in any order") {
  constexpr std::size_t calls = 1000;
  constexpr std::size_t elements = 64 * 1024 / sizeof(float);
  constexpr int size = 4;
  for (const unsigned seed : {1U, 2U}) {
    CAPTURE(seed);
    job all(size, [=](colls::world& world, const line& test) -> task<> {
      std::vector<std::vector<float>> data(calls);
      for (std::size_t i = 0; i < calls; ++i) {
        data[i].assign(elements, static_cast<float>(i) + static_cast<float>(world.rank()));
      }
      std::mt19937 random(seed + static_cast<unsigned>(world.rank()));
      std::vector<std::size_t> order(calls);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      co_await world.barrier();
      const std::size_t before = soak::resident_bytes();
      std::size_t highest = before;
      std::vector<colls::operation<>> kept;
      for (std::size_t i = 0; i < calls; ++i) {
        if (i % 2 == 0) {
          kept.push_back(world.all_reduce(data[i]));
        } else {
          kept.push_back(world.all_reduce(data[i], {.algorithm = colls::algorithm::ring}));
        }
      }
      bool right = true;
      for (const std::size_t i : order) {
        co_await kept[i];
        highest = std::max(highest, soak::resident_bytes());
        const float sum = size * static_cast<float>(i) + 0 + 1 + 2 + 3;
        for (const float each : data[i]) right &= each == sum;
      }
      test.say(right ? "right" : "wrong");
      test.say(std::to_string(highest - before));
    });
    for (int rank = 0; rank < size; ++rank) {
      CAPTURE(rank);
      CHECK(all.hear(rank, 60) == "right");
      const auto beyond = static_cast<std::size_t>(std::stoll(all.hear(rank)));
#if !defined(SANITIZED)
      CHECK(beyond < 64 << 20);
#endif
      MESSAGE("rank ", rank, " needs ", beyond >> 20, " MiB beyond the buffers");
      CHECK(all.wait(rank).status == 0);
    }
  }
}

TEST_CASE("operations in a row leave everything as it was, and none allocates") {
  constexpr int size = 2;
  const int rounds = operations_in_a_row() / soak::calls_in_a_round;
  job all(size, [=](colls::world& world, const line& test) -> task<> {
    soak::buffers data(size, 10);
    for (int i = 0; i < 500; ++i) co_await soak::round(world, data, i);
    co_await world.barrier();
    const used before;
    const std::size_t allocations_before = allocations;
    for (int i = 0; i < rounds; ++i) co_await soak::round(world, data, i);
    co_await world.barrier();
    const std::size_t allocated = allocations - allocations_before;
    const used after;
    test.say(std::to_string(allocated));
    test.say(std::to_string(grown(after.resident, before.resident)));
    test.say(std::to_string(after.descriptors - before.descriptors));
    test.say(std::to_string(after.threads - before.threads));
    test.hear();  // a rank that leaves closes its links
  });
  for (int rank = 0; rank < size; ++rank) {
    CAPTURE(rank);
    // Of 10^5 operations and more; a rank that is held up for once keeps more messages than ever.
    CHECK(std::stoll(all.hear(rank, 250)) < 100);
    CHECK(std::stoll(all.hear(rank)) < 1 << 20);
    CHECK(all.hear(rank) == "0");
    CHECK(all.hear(rank) == "0");
  }
  for (int rank = 0; rank < size; ++rank) all.tell(rank);
  for (int rank = 0; rank < size; ++rank) CHECK(all.wait(rank).status == 0);
}
