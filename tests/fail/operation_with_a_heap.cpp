// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: an operation is copied into the call: at most 64 bytes, trivially copyable
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
  const int number = 3;
#ifdef MUST_NOT_COMPILE
  const std::string owned("a");
  co_await comm.all_reduce(data, [owned](int a, int b) { return a + b; });
#else
  const auto add = [number](int a, int b) { return a + b + number; };
  co_await comm.all_reduce(data, add);
#endif
}
