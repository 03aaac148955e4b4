// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Tests for a GPU, compiled by nvcc: a model's calls between two processes, a device that fails,
// and a process that is killed. A file that includes this one first declares `tested`, the model;
// it is no template parameter because nvcc 13.0 fails on templates of such tasks.

#include "calls.hpp"
#include "processes.hpp"

inline colls::task<int> all_sizes(colls::world& world) {
  if (!has_device()) {
    co_await attach_without_device<tested>(world);
    co_return wrong;
  }
  for (const std::size_t n : {1ul, 1000ul, 1'000'003ul}) {
    co_await calls<tested>(world, n);
    if (world.rank() == 0) std::printf("ok    2 processes, %zu elements\n", n);
  }
  co_return wrong;
}

/// Rank 1 is killed in a loop of calls. Rank 0 gets peer_failed, and its device continues to work.
inline colls::task<> killed_in(colls::world& world, std::size_t n) {
  if (!has_device()) co_return;
  const int device = colls::cuda::device_for(world);
  auto gpu = co_await colls::cuda::attach<tested>(world, device);
  const colls::cuda::on_device here(device);
  colls::cuda::device_buffer<float> data(n);
  colls::errc code{};
  try {
    for (int i = 0; i < 1000; ++i) {
      auto call = gpu.all_reduce(data.span());
      if (i == 20 && world.rank() == 1) ::raise(SIGKILL);
      co_await call;
    }
  } catch (const colls::error& thrown) {
    code = static_cast<colls::errc>(thrown.code().value());
  }
  colls::cuda::stream after(device);
  const colls::cuda::device_buffer<float> fresh(n);
  after.copy(fresh.data(), data.data(), n * sizeof(float));
  co_await after.reached();
  const bool reported = code == colls::errc::peer_failed;
  std::printf("%s a process that is killed, %zu elements\n", reported ? "ok   " : "WRONG", n);
  std::fflush(stdout);
  ::_exit(reported ? 0 : 1);
}

inline colls::task<> killed(colls::world& world) { return killed_in(world, 20'000'000); }
/// Where each rank has its own GPU, these are calls of a peer group.
inline colls::task<> killed_in_short(colls::world& world) { return killed_in(world, 1000); }

static __global__ void fault() { __trap(); }

/// Rank 1's device fails before a call. Both ranks get device_failed, and everything but rank 1's
/// device continues to work.
inline colls::task<int> failed(colls::world& world) {
  if (!has_device()) co_return wrong;
  const int device = colls::cuda::device_for(world);
  auto gpu = co_await colls::cuda::attach<tested>(world, device);
  const colls::cuda::on_device here(device);
  colls::cuda::stream on(device);
  colls::options how;
  how.stream = on.ref();
  const colls::cuda::device_buffer<float> data(1000);
  co_await world.barrier();  // all ranks have attached
  if (world.rank() == 1) fault<<<1, 1, 0, colls::cuda::api::native(on.ref())>>>();
  colls::errc code{};
  try {
    co_await gpu.all_reduce(data.span(), how);
  } catch (const colls::error& thrown) {
    code = static_cast<colls::errc>(thrown.code().value());
    std::printf("note  rank %d: %s\n", world.rank(), thrown.what());
  }
  if (world.rank() == 0) {
    on.clear(data.data(), data.size() * sizeof(float));
    co_await on.reached();
  }
  std::vector<int> ranks{1};
  co_await world.all_reduce(ranks);
  const bool reported = code == colls::errc::device_failed && ranks[0] == 2;
  std::printf("%s a device that fails\n", reported ? "ok   " : "WRONG");
  co_return reported ? 0 : 1;
}

inline int between_processes() {
  int bad = in_processes(all_sizes);
  if (bad == 0) bad = in_processes(failed);
  if (bad == 0) bad = in_processes(killed, true);
  return bad != 0 ? bad : in_processes(killed_in_short, true);
}
