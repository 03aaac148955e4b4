// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the elements of this view are const, and the call writes them
#include <colls/colls.hpp>

#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  const colls::strided_view<const int> column(data.data(), {4}, {2});
#else
  const colls::strided_view column(data.data(), {4}, {2});
#endif
  co_await comm.broadcast(column, 0);
}
