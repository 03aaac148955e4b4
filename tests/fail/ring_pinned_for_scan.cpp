// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this collective has no such algorithm
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.scan<colls::algorithm::ring>(data);
#else
  co_await comm.scan<colls::algorithm::recursive_doubling>(data);
#endif
}
