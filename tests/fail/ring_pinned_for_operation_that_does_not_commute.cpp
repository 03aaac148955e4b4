// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this algorithm does not combine the inputs in rank order, so the operation has to commute: wrap it in colls::commutative, or pin another
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
  const auto join = [](int a, int b) { return 10 * a + b; };
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce<colls::algorithm::ring>(data, join);
#else
  co_await comm.all_reduce<colls::algorithm::ring>(data, colls::commutative(join));
  co_await comm.all_reduce<colls::algorithm::linear>(data, join);
#endif
}
