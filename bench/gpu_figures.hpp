// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Collects figures of a GPU in a table, and measures work on the device and calls for it.

#include <colls/communicator.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/cuda/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

using colls::cuda::check;

constexpr std::size_t large = std::size_t{256} << 20;  // bytes of a kernel's buffer
constexpr int repeats = 15;

struct figure {
  char name[64];
  double value;
  const char* unit;
  double share;  // of the floor; 0: there is no floor
};
inline std::vector<figure> table;

inline void add_figure(const char* name, double value, const char* unit, double share = 0) {
  figure row{{}, value, unit, share};
  std::snprintf(row.name, sizeof row.name, "%s", name);
  table.push_back(row);
}

inline double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}
inline double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// Returns the seconds on the device that the work of `enqueue()` takes, as a median. Each sample
/// enqueues the work several times, so the time to enqueue the first one is negligible.
template <class Enqueue>
double seconds_on_device(colls::cuda::stream& stream, const Enqueue& enqueue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  constexpr int repeated = 16;
  std::vector<double> all;
  for (int i = 0; i < repeats + 3; ++i) {
    check(cudaEventRecord(begin, colls::cuda::api::native(stream.ref())), "cudaEventRecord");
    for (int k = 0; k < repeated; ++k) enqueue();
    check(cudaEventRecord(end, colls::cuda::api::native(stream.ref())), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 3) all.push_back(ms * 1e-3 / repeated);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return median(all);
}

inline void print_table() {
  std::printf("%-48s %10s %-5s %s\n", "what", "got", "", "of its floor");
  for (const figure& row : table) {
    std::printf("%-48s %10.2f %-5s ", row.name, row.value, row.unit);
    if (row.share != 0) std::printf("%.2f", row.share);
    std::printf("\n");
  }
}

/// Returns the median over calls of the slowest rank's time, in seconds.
template <class Communicator, class Call>
colls::task<double> seconds_of_call(Communicator& comm, Call call) {
  std::vector<double> all;
  for (int i = 0; i < repeats + 3; ++i) {
    co_await comm.barrier();
    const double begin = now();
    co_await call();
    std::vector<double> took{now() - begin};
    co_await comm.all_reduce(took, colls::maximum());
    if (i >= 3) all.push_back(took[0]);
  }
  co_return median(all);
}
