// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this buffer is const, and the call writes it
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  const std::vector<int> in(8);
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(data, in);
#else
  co_await comm.all_reduce(in, data);
#endif
}
