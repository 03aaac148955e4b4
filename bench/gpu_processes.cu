// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// What two processes that share one GPU take for calls where they see each other's memory. Exits with
// 77 where there is none.

#include "../tests/cuda/processes.hpp"
#include "gpu_figures.hpp"

int main() {
  const auto rank_main = [](colls::world& world) -> colls::task<int> {
    bool is_there = true;
    try {
      (void)colls::cuda::devices();
    } catch (const colls::error& none) {
      if (world.rank() == 0) std::printf("skipped: %s\n", none.what());
      is_there = false;
    }
    if (!is_there) co_return 77;
    co_await mapped_calls(world, "processes");
    if (world.rank() == 0) print_table();
    co_return 0;
  };
  return in_processes(rank_main);
}
