// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this operation cannot reduce this element type
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  struct point {
    int x;
  };
  std::vector<point> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(data);
#else
  const auto add = [](point a, point b) { return point{a.x + b.x}; };
  co_await comm.all_reduce(data, add);
#endif
}
