// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a device's memory can do, as its own copies show it.

#include <colls/cuda/memory.hpp>

#include <algorithm>
#include <chrono>

namespace bench {

/// Bytes that the current device reads and writes in a second by copies of its own.
inline double copy_rate() {
  using clock = std::chrono::steady_clock;
  constexpr std::size_t bytes = std::size_t{256} << 20;
  constexpr int in_a_row = 16;  // beside which their start and end are nothing
  const colls::cuda::device_buffer<std::byte> from(bytes);
  const colls::cuda::device_buffer<std::byte> to(bytes);
  double best = 0;
  for (int turn = 0; turn < 4; ++turn) {
    const auto began = clock::now();
    for (int i = 0; i < in_a_row; ++i) {
      colls::cuda::check(colls::cuda::api::copy(to.data(), from.data(), bytes, {}),
                         "cudaMemcpyAsync");
    }
    colls::cuda::check(colls::cuda::api::synchronize({}), "cudaStreamSynchronize");
    const std::chrono::duration<double> took = clock::now() - began;
    best = std::max(best, 2.0 * in_a_row * static_cast<double>(bytes) / took.count());
  }
  return best;
}

}  // namespace bench
