// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: both buffers must have the same element type
#include <colls/colls.hpp>

#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  std::vector<float> out(4);
#else
  std::vector<int> out(4);
#endif
  const colls::strided_view column(data.data(), {4}, {2});
  co_await comm.all_reduce(column, out);
}
