// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls between two processes that access each other's device memory, memory of `allocate` that is
// freed while the peer has it mapped, and a process that is killed while its memory is mapped.
// Without a GPU this tests that the program compiles, and that attaching fails with an error of
// colls.

#include <colls/cuda/ipc.hpp>

using tested = colls::cuda::cuda_ipc;
#include "between_processes.hpp"

/// Sums in memory of `allocate`, which is freed after each sum.
colls::task<int> allocated(colls::world& world) {
  if (!has_device()) co_return wrong;
  const int device = colls::cuda::device_for(world);
  auto gpu = co_await colls::cuda::attach<tested>(world, device);
  const colls::cuda::on_device here(device);
  colls::cuda::stream on(device);
  colls::options how;
  how.stream = on.ref();
  const std::size_t n = 3'000'001;
  colls::cuda::pinned_buffer<float> host(n);
  const float mine = static_cast<float>(world.rank() + 1);
  std::size_t bad = 0;
  std::uint64_t copied = 0;
  for (int i = 0; i < 20; ++i) {
    auto data = gpu.allocate<float>(n);
    on.copy(host.data(), data.data(), n * sizeof(float));
    co_await on.reached();
    for (std::size_t j = 0; j < n; ++j) {
      bad += host.data()[j] != 0 ? 1 : 0;
      host.data()[j] = mine;
    }
    on.copy(data.data(), host.data(), n * sizeof(float));
    auto summed = gpu.all_reduce(data, how);
    co_await summed;
    copied += summed.copied_bytes();
    auto part = gpu.register_buffer(data, 1000, 1'000'000);
    auto sent = gpu.broadcast(part, 0, how);
    co_await sent;
    copied += sent.copied_bytes();
    on.copy(host.data(), data.data(), n * sizeof(float));
    co_await on.reached();
    for (std::size_t j = 0; j < n; ++j) bad += host.data()[j] != 3 ? 1 : 0;
  }
  wrong += bad != 0 || copied != 0 ? 1 : 0;
  std::printf("%s memory of allocate, %llu bytes staged\n", bad + copied == 0 ? "ok   " : "WRONG",
              static_cast<unsigned long long>(copied));
  co_await gpu.close();
  co_return wrong;
}

int main() {
  const int bad = in_processes(allocated);
  return bad != 0 ? bad : between_processes();
}
