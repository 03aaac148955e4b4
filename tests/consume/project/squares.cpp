// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The second file of the program.
#include <colls/world.hpp>

#include <vector>

colls::task<int> sum_of_squares(colls::world& world) {
  const int mine = world.rank() * world.rank();
  std::vector<int> squares(static_cast<std::size_t>(world.size()));
  co_await world.all_gather(std::span(&mine, 1), squares);
  int sum = 0;
  for (const int square : squares) {
    sum += square;
  }
  co_return sum;
}
