// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Very many operations, at the same time and in a row: memory, descriptors and threads of each rank
// stay bounded. And one operation with very many bytes.

#include "../support/soak.hpp"
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
  constexpr int usual = 1'000'000;
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
    test.hear();  // a rank that leaves closes its connections
  });
  for (int rank = 0; rank < size; ++rank) {
    CAPTURE(rank);
    // The bound does not depend on the number of operations. A rank that is held up once may keep
    // more messages than before.
    CHECK(std::stoll(all.hear(rank, 250)) < 100);
    CHECK(std::stoll(all.hear(rank)) < 1 << 20);
    CHECK(all.hear(rank) == "0");
    CHECK(all.hear(rank) == "0");
  }
  for (int rank = 0; rank < size; ++rank) all.tell(rank);
  for (int rank = 0; rank < size; ++rank) CHECK(all.wait(rank).status == 0);
}

#if !defined(SANITIZED)  // with sanitizers this takes minutes

namespace {

/// Returns the bytes of memory that are available on this machine.
std::size_t available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  std::size_t kib = 0;
  for (std::string unit; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

}  // namespace

TEST_CASE("more bytes than 2^31 in one call, in memory of any kind") {
  constexpr std::size_t size = (std::size_t{1} << 31) + 5;
  if (available() < 4 * size) {
    MESSAGE("skipped: it takes 4 GiB of memory, and as much should stay free");
    return;
  }
  for (const bool is_shared : {false, true}) {
    CAPTURE(is_shared);
    job all(2, [=](colls::world& world, const line& test) -> task<> {
      const auto mine = static_cast<unsigned char>(world.rank() + 1);
      std::vector<unsigned char> own(is_shared ? 0 : size);
      colls::shared_buffer<unsigned char> shared;
      if (is_shared) shared = world.allocate<unsigned char>(size);
      const std::span<unsigned char> data(is_shared ? shared.data() : own.data(), size);
      // The other rank has to map it first.
      std::vector<int> is_mapped(1, is_shared ? 0 : 1);
      while (is_mapped[0] == 0) {
        auto some = world.all_reduce(data.first(1 << 20));
        co_await some;
        is_mapped[0] = some.copied_bytes() == 0 ? 1 : 0;
        co_await world.all_reduce(is_mapped, colls::minimum{});
      }
      std::fill(data.begin(), data.end(), mine);
      data[size - 2] = static_cast<unsigned char>(10 * mine);
      const auto by = world.explain(colls::collective::all_reduce, size).chosen.id;
      auto sum = world.all_reduce(data);
      co_await sum;
      bool right = data[0] == 3 && data[size / 2] == 3 && data[size - 2] == 30 && data.back() == 3;
      if (world.rank() == 0) data.back() = data[size / 2] = 77;
      auto from_0 = world.broadcast(data, 0);
      co_await from_0;
      right &= data[0] == 3 && data[size / 2] == 77 && data[size - 2] == 30 && data.back() == 77;
      test.say(right ? "right" : "wrong");
      test.say(name(by));
      test.say(std::to_string(sum.copied_bytes() + (is_shared ? from_0.copied_bytes() : 0)));
    });
    REQUIRE(all.all_say("right", 200));
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(all.hear(rank) == "direct");
      // In private memory the other rank's half is copied to a bounce buffer, and half of the sums
      // from one.
      const std::string copied = all.hear(rank);
      CHECK(std::stoull(copied) / (size - 100) == (is_shared ? 0 : 1));
      CHECK(all.wait(rank).status == 0);
    }
  }
}

#endif
