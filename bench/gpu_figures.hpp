// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A table of figures of a GPU, and calls measured for it.

#include <colls/communicator.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/cuda/stream.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

using colls::cuda::check;

constexpr std::size_t large = std::size_t{256} << 20;  // bytes of a buffer of the kernels
constexpr int repeats = 15;

struct line {
  char what[64];
  double got;
  const char* unit;
  double share;  // of the floor beside it; 0: none
};
inline std::vector<line> table;

inline void note(const char* what, double got, const char* unit, double share = 0) {
  line made{{}, got, unit, share};
  std::snprintf(made.what, sizeof made.what, "%s", what);
  table.push_back(made);
}

inline double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}
inline double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// Seconds on the device that `enqueue()` takes, the median of some: of several in a row, beside
/// which what the host takes to enqueue the first one is little.
template <class Enqueue>
double on_the_device(colls::cuda::stream& on, const Enqueue& enqueue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  constexpr int in_a_row = 16;
  std::vector<double> all;
  for (int i = 0; i < repeats + 3; ++i) {
    check(cudaEventRecord(begin, colls::cuda::api::native(on.ref())), "cudaEventRecord");
    for (int k = 0; k < in_a_row; ++k) enqueue();
    check(cudaEventRecord(end, colls::cuda::api::native(on.ref())), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 3) all.push_back(ms * 1e-3 / in_a_row);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return median(all);
}

inline void print_table() {
  std::printf("%-48s %10s %-5s %s\n", "what", "got", "", "of its floor");
  for (const line& each : table) {
    std::printf("%-48s %10.2f %-5s ", each.what, each.got, each.unit);
    if (each.share != 0) std::printf("%.2f", each.share);
    std::printf("\n");
  }
}

/// Median seconds of the slower rank.
template <class Communicator, class Call>
colls::task<double> of_calls(Communicator& comm, Call call) {
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
