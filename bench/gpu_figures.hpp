// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A table of figures of a GPU, and calls measured for it.

#include <colls/cuda/ipc.hpp>
#include <colls/cuda/reduce.cuh>

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

/// Seconds on the device that `enqueue(stream)` takes, the median of some.
template <class Enqueue>
double on_the_device(colls::cuda::stream& on, const Enqueue& enqueue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> all;
  for (int i = 0; i < repeats + 3; ++i) {
    check(cudaEventRecord(begin, colls::cuda::api::native(on.ref())), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(end, colls::cuda::api::native(on.ref())), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 3) all.push_back(ms * 1e-3);
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

/// Bytes read and written in a second by the device's own copy.
inline double copy_rate(colls::cuda::stream& on) {
  const colls::cuda::device_buffer<std::byte> from(large);
  const colls::cuda::device_buffer<std::byte> to(large);
  check(cudaMemset(from.data(), 0, large), "cudaMemset");
  return 2.0 * large / on_the_device(on, [&] { on.copy(to.data(), from.data(), large); });
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

/// all_reduce in place where ranks see each other's memory. The floor reads each input once and
/// writes each output once.
template <class Transport>
colls::task<> mapped_calls(colls::communicator<Transport>& comm, const char* who) {
  const colls::cuda::on_device here(0);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(comm, 0);
  colls::cuda::stream on(0);
  co_await comm.barrier();
  const double copy = comm.rank() == 0 ? copy_rate(on) : 0;
  const std::size_t most = large / sizeof(float);
  const colls::cuda::device_buffer<float> data(most);
  check(cudaMemset(data.data(), 0, large), "cudaMemset");
  for (const std::size_t count : {std::size_t{2}, std::size_t{16 * 1024}, most / 4, most}) {
    const auto call = [&] { return gpu.all_reduce(data.span().subspan(0, count)); };
    const double takes = co_await of_calls(comm, call);
    const double bytes = static_cast<double>(count * sizeof(float));
    char what[64];
    std::snprintf(what, sizeof what, "cuda_ipc all_reduce, 2 %s, %.0f KiB", who, bytes / 1024);
    if (comm.rank() == 0)
      note(what, takes * 1e6, "us", count < most / 4 ? 0 : 4 * bytes / copy / takes);
  }
  co_await gpu.close();
}
