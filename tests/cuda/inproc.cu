// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// colls.hpp and an algorithm of the user's own, compiled by nvcc as host code of a .cu file.

#include <colls/colls.hpp>

#include "../extend/star.hpp"

#include <cstdio>
#include <vector>

int main() {
  int wrong = 0;
  colls::inproc::run(4, [&](colls::inproc::communicator& comm) -> colls::task<> {
    std::vector<float> data(1000, static_cast<float>(comm.rank()));
    co_await comm.all_reduce(data);
    co_await comm.all_reduce<my::star>(data);
    for (const float x : data) wrong += x == 24.0F ? 0 : 1;
  });
  std::printf("%d wrong\n", wrong);
  return wrong == 0 ? 0 : 1;
}
