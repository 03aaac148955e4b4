// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this communicator moves host memory: device_span needs one for devices
#include <colls/colls.hpp>

#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm, colls::device_span<int> device) {
  std::vector<int> one(8);
  std::vector<int> other(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(colls::group{one, device});
#else
  co_await comm.all_reduce(colls::group{one, other});
#endif
}
