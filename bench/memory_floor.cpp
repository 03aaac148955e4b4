// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// memory-floor: the best times of two processes with memory that they share.
//   exchange      each process writes N bytes into its cache lines, 56 and a number in each, and
//                 reads the lines of the other; an all_reduce of N bytes does the same, and adds
//   add           after a barrier, each process reads its half of both vectors of N bytes and
//                 writes the sum to both results: an all_reduce of buffers that both can access
//   copy          each process copies N bytes of its own
//   over_read     each process copies N bytes over memory that the other has read
//   over_written  the same, but the other process has also written to each line of that memory

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
  void* const address = ::mmap(nullptr, std::max<std::size_t>(count * sizeof(T), 1),
                               PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  return static_cast<T*>(address);
}

/// The memory that both processes share.
struct memory {
  explicit memory(std::uint64_t bytes) {
    // Vectors lie at different offsets in their pages: a load would wait for a store to the same
    // offset of another page (4 KiB aliasing).
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

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Exchanges `bytes` bytes. Even and odd numbers use different lines, and barriers have even
/// numbers, so a line with payload is not overwritten before the peer has read it.
void exchange(const memory& all, int rank, std::uint64_t number, const unsigned char* in,
              unsigned char* out, std::uint64_t bytes) {
  const std::uint64_t count = bytes / sizeof line::payload + 1;
  line* const own = all.lines[rank] + number % 2 * count;
  line* const peer = all.lines[1 - rank] + number % 2 * count;
  for (std::uint64_t done = 0, i = 0; i == 0 || done < bytes; ++i, done += sizeof line::payload) {
    std::memcpy(own[i].payload, in + done, std::min<std::uint64_t>(bytes - done, 56));
    own[i].number.store(number, std::memory_order_release);
  }
  for (std::uint64_t done = 0, i = 0; i == 0 || done < bytes; ++i, done += sizeof line::payload) {
    while (peer[i].number.load(std::memory_order_acquire) < number) pause();
    std::memcpy(out + done, peer[i].payload, std::min<std::uint64_t>(bytes - done, 56));
  }
}

WIDEST void add(const float* a, const float* b, float* __restrict first, float* __restrict second,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) first[i] = second[i] = a[i] + b[i];
}

/// Reads the vector that the peer copied last. With `writes` it also writes to each of its lines.
void read_peer(float* peer, std::vector<float>& out, bool writes) {
  std::memcpy(out.data(), peer, out.size() * sizeof(float));
  constexpr std::size_t line_elements = 64 / sizeof(float);
  for (std::size_t i = 0; writes && i < out.size(); i += line_elements) {
    *static_cast<volatile float*>(peer + i) = 0;
  }
}

int measure(int rank, const memory& all, const bench::options& opts) {
  const bench::report output(opts, 2);
  if (rank == 0) output.head();
  std::uint64_t number = 0;
  unsigned char none[1] = {};
  const auto barrier = [&] { exchange(all, rank, number += 2, none, none, 0); };
  for (const std::uint64_t bytes : opts.sizes(8)) {
    const std::size_t count = bytes / sizeof(float);
    std::fill_n(all.in[rank], count, static_cast<float>(rank + 1));
    std::fill_n(all.out[rank], count, 0.0F);
    const auto* const in = reinterpret_cast<const unsigned char*>(all.in[rank]);
    auto* const out = reinterpret_cast<unsigned char*>(all.out[rank]);
    const std::size_t half = rank == 0 ? 0 : count / 2;
    const std::size_t size = rank == 0 ? count / 2 : count - count / 2;
    const int warmup = opts.warmup_for(bytes);
    const int iterations = std::min(opts.iterations_for(bytes), 1 << 16);
    std::vector<float> read(count);
    for (int k = -warmup; k < iterations; ++k) {
      barrier();
      if (opts.collective.starts_with("over_")) {
        read_peer(all.out[1 - rank], read, opts.collective == "over_written");
        barrier();
      }
      const auto began = clock_type::now();
      if (opts.collective == "exchange") {
        exchange(all, rank, number + 1, in, out, bytes);
      } else if (opts.collective == "add") {
        barrier();
        add(all.in[0] + half, all.in[1] + half, all.out[0] + half, all.out[1] + half, size);
      } else {
        std::memcpy(out, in, bytes);
      }
      const std::chrono::duration<double> took = clock_type::now() - began;
      if (k >= 0) all.times[rank][k] = took.count();
    }
    barrier();
    const float expected = opts.collective == "exchange" ? static_cast<float>(2 - rank)
                           : opts.collective == "add"    ? 3.0F
                                                         : static_cast<float>(rank + 1);
    const auto wrong = static_cast<std::ptrdiff_t>(count) -
                       std::count(all.out[rank], all.out[rank] + count, expected);
    std::vector<double> seconds(static_cast<std::size_t>(iterations));
    for (std::size_t k = 0; k < seconds.size(); ++k) {
      seconds[k] = std::max(all.times[0][k], all.times[1][k]);
    }
    if (rank == 0) output.line(bytes, 4, seconds, 1, static_cast<std::uint64_t>(wrong));
    barrier();
    if (wrong != 0) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Two processes exchange cache lines, add vectors or copy them in shared memory.");
  bench::options opts;
  opts.library = "floor";
  opts.transport = "shm";
  opts.op = "none";
  app.add_option("what", opts.collective)
      ->required()
      ->check(CLI::IsMember({"exchange", "add", "copy", "over_read", "over_written"}));
  bench::declare_sizes(app, opts);
  try {
    app.parse(argc, argv);
    const std::vector<std::uint64_t> sizes = opts.sizes(8);
    const memory all(*std::max_element(sizes.begin(), sizes.end()));
    return bench::run_in_processes(2, [&](int rank) { return measure(rank, all, opts); });
  } catch (const CLI::ParseError& wrong) {
    return bench::report_parse_error(app, "memory-floor", wrong);
  } catch (const std::exception& failed) {
    std::fprintf(stderr, "memory-floor: %s\n", failed.what());
    return 1;
  }
}
