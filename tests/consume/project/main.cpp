// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The first of two files of a user's program that call collectives on a world. Run with 3 ranks.
#include <colls/run.hpp>

#include <cstdio>
#include <vector>

colls::task<int> sum_of_squares(colls::world& world);

int main() {
  return colls::run([](colls::world& world) -> colls::task<> {
    std::vector<float> v(1000, static_cast<float>(world.rank()));
    co_await world.all_reduce(v);
    const int squares = co_await sum_of_squares(world);
    if (world.size() != 3 || v[999] != 3 || squares != 5) {
      throw std::runtime_error("wrong result");
    }
    if (world.rank() == 0) {
      std::puts("3 ranks agree");
    }
  });
}
