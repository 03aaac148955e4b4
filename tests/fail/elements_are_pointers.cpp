// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: elements must be arithmetic, float16, bfloat16, std::complex or a trivially copyable struct that is no pointer, range or span
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int*> pointers(8);
  std::vector<std::intptr_t> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.broadcast(pointers, 0);
#else
  co_await comm.broadcast(data, 0);
#endif
}
