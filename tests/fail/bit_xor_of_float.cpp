// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this operation cannot reduce this element type
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<float> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(data, colls::bit_xor{});
#else
  co_await comm.all_reduce(data, colls::maximum{});
#endif
}
