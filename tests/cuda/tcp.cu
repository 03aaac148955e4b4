// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The tcp model under nvcc, alone: no launcher is needed for a world of one.

#include <colls/run.hpp>

#include <cstdio>
#include <vector>

int main() {
  return colls::run(
      [](colls::world& world) -> colls::task<> {
        std::vector<float> data(1000, 1.0F);
        co_await world.all_reduce(data);
        std::printf("rank %d of %d: %g\n", world.rank(), world.size(),
                    static_cast<double>(data.back()));
      },
      colls::config::single());
}
