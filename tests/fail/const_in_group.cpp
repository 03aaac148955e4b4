// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the call writes the buffers of a group, and one of them is const
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  const std::vector<int> in(8);
  std::vector<int> data(8);
  std::vector<int> more(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(colls::group{data, in});
#else
  co_await comm.all_reduce(colls::group{data, more});
#endif
}
