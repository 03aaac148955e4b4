// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// memory-floor: what two processes and the memory that they share can do at best.
//   exchange  each writes N bytes into lines of its own, 56 and a number in each, and reads the
//             other's: an all_reduce of N bytes has to do as much, and to add besides
//   add       when both are there, each reads its half of both vectors of N bytes and writes
//             the sum to both results: an all_reduce of buffers that both can reach
//   copy      each copies N bytes of its own
//   over_read     each copies N bytes over what the other has read
//   over_written  each copies N bytes over what the other has read, and then written to each line

#include "colls_bench/command_line.hpp"
#include "colls_bench/processes.hpp"
#include "colls_bench/report.hpp"
#include "colls_bench/widest.hpp"

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstring>

namespace {

using clock_type = std::chrono::steady_clock;

struct alignas(64) line {
  std::atomic<std::uint64_t> number;
  unsigned char payload[56];
};

template <class T>
T* shared(std::size_t count) {
  void* const at = ::mmap(nullptr, std::max<std::size_t>(count * sizeof(T), 1),
                          PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(at);
}

/// What both processes see.
struct memory {
  explicit memory(std::uint64_t bytes) {
    // Vectors do not lie at equal places of their pages: a load would wait for the store to the
    // same place of another page.
    constexpr std::size_t gap = 17 * 64 / sizeof(float);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      lines[rank] = shared<line>(2 * (bytes / sizeof line::payload + 1));
      in[rank] = shared<float>(bytes / sizeof(float) + gap) + rank * gap;
      out[rank] = shared<float>(bytes / sizeof(float) + 3 * gap) + (2 + rank) * gap;
      times[rank] = shared<double>(1 << 16);
    }
  }
  line* lines[2];
  float* in[2];
  float* out[2];
  double* times[2];
};

/// Lines are used by turns, those with payload at every other: what nobody has read stays.
void exchange(const memory& all, int rank, std::uint64_t number, const unsigned char* from,
              unsigned char* to, std::uint64_t bytes) {
  const std::uint64_t many = bytes / sizeof line::payload + 1;
  line* const mine = all.lines[rank] + number % 2 * many;
  line* const theirs = all.lines[1 - rank] + number % 2 * many;
  for (std::uint64_t at = 0, i = 0; i == 0 || at < bytes; ++i, at += sizeof line::payload) {
    std::memcpy(mine[i].payload, from + at, std::min<std::uint64_t>(bytes - at, 56));
    mine[i].number.store(number, std::memory_order_release);
  }
  for (std::uint64_t at = 0, i = 0; i == 0 || at < bytes; ++i, at += sizeof line::payload) {
    while (theirs[i].number.load(std::memory_order_acquire) < number) __builtin_ia32_pause();
    std::memcpy(to + at, theirs[i].payload, std::min<std::uint64_t>(bytes - at, 56));
  }
}

WIDEST void add(const float* a, const float* b, float* __restrict one, float* __restrict other,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) one[i] = other[i] = a[i] + b[i];
}

/// Reads what the other one copied last, and writes to its lines, too.
void take(float* from, std::vector<float>& to, bool writes) {
  std::memcpy(to.data(), from, to.size() * sizeof(float));
  constexpr std::size_t a_line = 64 / sizeof(float);
  for (std::size_t i = 0; writes && i < to.size(); i += a_line) {
    *static_cast<volatile float*>(from + i) = 0;
  }
}

int measure(int rank, const memory& all, const bench::options& how) {
  const bench::report to(how, 2);
  if (rank == 0) to.head();
  std::uint64_t number = 0;
  unsigned char none[1] = {};
  const auto meet = [&] { exchange(all, rank, number += 2, none, none, 0); };
  for (const std::uint64_t bytes : how.sizes(8)) {
    const std::size_t count = bytes / sizeof(float);
    std::fill_n(all.in[rank], count, static_cast<float>(rank + 1));
    std::fill_n(all.out[rank], count, 0.0F);
    const auto* const from = reinterpret_cast<const unsigned char*>(all.in[rank]);
    auto* const into = reinterpret_cast<unsigned char*>(all.out[rank]);
    const std::size_t half = rank == 0 ? 0 : count / 2;
    const std::size_t size = rank == 0 ? count / 2 : count - count / 2;
    const int warmup = how.warmup_for(bytes);
    const int iterations = std::min(how.iterations_for(bytes), 1 << 16);
    std::vector<float> taken(count);
    for (int k = -warmup; k < iterations; ++k) {
      meet();
      if (how.collective.starts_with("over_")) {
        take(all.out[1 - rank], taken, how.collective == "over_written");
        meet();
      }
      const auto began = clock_type::now();
      if (how.collective == "exchange") {
        exchange(all, rank, number + 1, from, into, bytes);
      } else if (how.collective == "add") {
        meet();
        add(all.in[0] + half, all.in[1] + half, all.out[0] + half, all.out[1] + half, size);
      } else {
        std::memcpy(into, from, bytes);
      }
      const std::chrono::duration<double> took = clock_type::now() - began;
      if (k >= 0) all.times[rank][k] = took.count();
    }
    meet();
    const float expected = how.collective == "exchange" ? static_cast<float>(2 - rank)
                           : how.collective == "add"    ? 3.0F
                                                        : static_cast<float>(rank + 1);
    const auto wrong = static_cast<std::ptrdiff_t>(count) -
                       std::count(all.out[rank], all.out[rank] + count, expected);
    std::vector<double> seconds(static_cast<std::size_t>(iterations));
    for (std::size_t k = 0; k < seconds.size(); ++k) {
      seconds[k] = std::max(all.times[0][k], all.times[1][k]);
    }
    if (rank == 0) to.line(bytes, 4, seconds, 1, static_cast<std::uint64_t>(wrong));
    meet();
    if (wrong != 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Two processes exchange lines, add vectors or copy them in memory that they share.");
  bench::options how;
  how.library = "floor";
  how.transport = "shm";
  how.op = "none";
  app.add_option("what", how.collective)
      ->required()
      ->check(CLI::IsMember({"exchange", "add", "copy", "over_read", "over_written"}));
  bench::declare_sizes(app, how);
  try {
    app.parse(argc, argv);
    const std::vector<std::uint64_t> sizes = how.sizes(8);
    const memory all(*std::max_element(sizes.begin(), sizes.end()));
    return bench::in_processes(2, [&](int rank) { return measure(rank, all, how); });
  } catch (const CLI::ParseError& wrong) {
    return bench::refused(app, "memory-floor", wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "memory-floor: %s\n", failed.what());
    return 1;
  }
}
