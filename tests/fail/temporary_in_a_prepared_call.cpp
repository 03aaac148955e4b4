// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the data is a temporary that would be destroyed before the call is started: give it a name, or pass a std::span
#include <colls/colls.hpp>

#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  auto step = comm.prepare_all_reduce(std::vector<int>(8));
#else
  auto step = comm.prepare_all_reduce(std::span(data));
#endif
  co_await step.start();
}
