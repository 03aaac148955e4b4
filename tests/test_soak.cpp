// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/inproc.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <random>

#include "communicators.hpp"

// A million operations in a row: memory, descriptors, threads and stack stay as they are, and no
// operation allocates. A thousand at once: in bounded memory.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

#if !defined(SANITIZED)
// Every allocation of the program comes through here, those of operator new too.
static std::size_t allocations;
extern "C" {
void* __libc_malloc(std::size_t size);                     // NOLINT
void* __libc_calloc(std::size_t count, std::size_t size);  // NOLINT
void* __libc_realloc(void* memory, std::size_t size);      // NOLINT
void* malloc(std::size_t size) {
  ++allocations;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++allocations;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++allocations;
  return __libc_realloc(memory, size);
}
}
#endif

namespace {

using colls::algorithm;
using colls::operation;
using colls::task;
using colls::inproc::communicator;

std::size_t resident_bytes() {
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  std::size_t pages = 0;
  std::size_t resident = 0;
  const int found = std::fscanf(file, "%zu %zu", &pages, &resident);
  std::fclose(file);
  REQUIRE(found == 2);
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}
std::ptrdiff_t entries(const char* folder) {
  const std::filesystem::directory_iterator begin(folder);
  return std::distance(begin, std::filesystem::directory_iterator());
}

struct used {
  std::size_t resident = resident_bytes();
  std::ptrdiff_t descriptors = entries("/proc/self/fd");
  std::ptrdiff_t threads = entries("/proc/self/task");
};

struct buffers {
  explicit buffers(int ranks, std::size_t n)
      : one(n), other(n), all(n * static_cast<std::size_t>(ranks)) {}
  std::vector<float> one, other, all;
};

constexpr int calls_in_a_round = 16;
task<> round(communicator& comm, buffers& data, int number) {
  const int p = comm.size();
  const int root = number % p;
  co_await comm.all_reduce(data.one);
  co_await comm.all_reduce<algorithm::ring>(data.one, colls::maximum{});
  co_await comm.all_reduce(data.one, data.other, colls::average{});
  co_await comm.barrier();
  co_await comm.broadcast(data.one, root);
  co_await comm.reduce(data.one, root);
  co_await comm.scan(data.one, colls::minimum{});
  co_await comm.exscan(data.other, colls::minimum{});
  co_await comm.all_gather(data.one, data.all);
  co_await comm.reduce_scatter(data.all, data.other, colls::maximum{});
  co_await comm.gather(data.one, data.all, root);
  co_await comm.scatter(data.all, data.one, root);
  co_await comm.all_to_all(data.all, data.all);
  operation<> kept = comm.barrier();
  operation<colls::received> got = comm.recv(data.other, (comm.rank() + 1) % p);
  co_await comm.send(data.one, (comm.rank() + p - 1) % p);
  co_await got;
  co_await kept;
}

TEST_CASE("a million operations in a row leave everything as it was") {
#if defined(SANITIZED)
  constexpr int operations = 50'000;
#else
  constexpr int operations = 1'000'000;
#endif
  for (const int p : {2, 3, 4}) {
    CAPTURE(p);
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
#if !defined(SANITIZED)
    const std::size_t allocations_before = allocations;
#endif
    run(operations / 3 / p / calls_in_a_round);
#if !defined(SANITIZED)
    // The vector of tasks and its frame are the test's.
    CHECK(allocations - allocations_before < 10);
#endif
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
