// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the data is a temporary that would be destroyed before the operation ends
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.send(std::string("gone"), 0);
#else
  co_await comm.send(data, 0);
#endif
}
