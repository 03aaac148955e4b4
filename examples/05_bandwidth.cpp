// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Measures the bandwidth of an all_reduce of 64 MiB: colls-run -n 4 bandwidth

#include <colls/run.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

constexpr std::size_t count = 16 << 20;
constexpr int iterations = 11;

// Small integers, whose sum is exact in every order.
float input(int rank, std::size_t i) {
  return static_cast<float>(rank + static_cast<int>(i % 1000));
}

float sum(int ranks, std::size_t i) {
  return static_cast<float>(ranks * (ranks - 1) / 2 + ranks * static_cast<int>(i % 1000));
}

colls::task<> measure(colls::world& world) {
  std::vector<float> data(count);
  std::vector<double> seconds;
  std::vector<long> wrong{0};
  for (int k = -1; k < iterations; ++k) {  // the first iteration is a warm-up
    for (std::size_t i = 0; i < count; ++i) data[i] = input(world.rank(), i);
    co_await world.barrier();
    const auto began = std::chrono::steady_clock::now();
    co_await world.all_reduce(data);
    double slowest[] = {
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count()};
    co_await world.all_reduce(slowest, colls::maximum{});
    for (std::size_t i = 0; i < count; ++i) wrong[0] += data[i] != sum(world.size(), i);
    if (k >= 0) seconds.push_back(slowest[0]);
  }
  co_await world.all_reduce(wrong);
  if (wrong[0] != 0) throw std::runtime_error(std::to_string(wrong[0]) + " elements are wrong");
  if (world.rank() != 0) co_return;

  std::sort(seconds.begin(), seconds.end());
  const double median = seconds[iterations / 2];
  const double bytes = count * sizeof(float);
  const double algbw = bytes / median * 1e-9;
  const double busbw = algbw * 2 * (world.size() - 1) / world.size();
  std::printf("all_reduce of %g MiB, %d ranks: %.1f ms, algbw %.2f GB/s, busbw %.2f GB/s\n",
              bytes / (1 << 20), world.size(), median * 1e3, algbw, busbw);
}

int main() {
  return colls::run([](colls::world& world) { return measure(world); });
}
