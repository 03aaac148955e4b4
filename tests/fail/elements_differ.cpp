// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: both buffers must have the same element type
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
  std::vector<float> other(8);
  std::vector<int> more(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(data, other);
#else
  co_await comm.all_reduce(data, more);
#endif
}
