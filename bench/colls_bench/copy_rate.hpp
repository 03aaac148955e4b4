// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The bandwidth of a device's memory, measured by its own copies.

#include <colls/cuda/memory.hpp>

#include <algorithm>
#include <chrono>

namespace bench {

/// Returns the bytes that the current device reads and writes in a second when it copies its
/// memory.
inline double copy_rate() {
  using clock = std::chrono::steady_clock;
  constexpr std::size_t bytes = std::size_t{256} << 20;
  constexpr int copies = 16;  // so many that the cost of launch and wait is negligible
  const colls::cuda::device_buffer<std::byte> source(bytes);
  const colls::cuda::device_buffer<std::byte> dest(bytes);
  double best = 0;
  for (int iteration = 0; iteration < 4; ++iteration) {
    const auto began = clock::now();
    for (int i = 0; i < copies; ++i) {
      colls::cuda::check(colls::cuda::api::copy(dest.data(), source.data(), bytes, {}),
                         "cudaMemcpyAsync");
    }
    colls::cuda::check(colls::cuda::api::synchronize({}), "cudaStreamSynchronize");
    const std::chrono::duration<double> took = clock::now() - began;
    best = std::max(best, 2.0 * copies * static_cast<double>(bytes) / took.count());
  }
  return best;
}

}  // namespace bench
