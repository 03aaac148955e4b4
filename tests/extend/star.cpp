// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// A program whose processes sum a vector by the star. It is built header-only and with the copy of
// colls that is compiled once.
#include <colls/interprocess.hpp>
#include <colls/run.hpp>

#include "star.hpp"

#include <cstdio>
#include <vector>

int main() {
  return colls::run([](colls::world& world) -> colls::task<> {
    std::vector<double> data(1000, world.rank() + 1.0);
    std::vector<double> sum(data.size());
    co_await world.all_reduce<my::star>(data);
    co_await world.all_reduce<my::star>(data, sum);
    if (world.rank() == 0) {
      const colls::explanation price = world.explain<my::star>(8000);
      std::printf("%g, predicted: %s\n", sum.back(), to_text(price).c_str());
    }
  });
}
