// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this communicator moves host memory: device_span needs one for devices
#include <colls/colls.hpp>

#include <string>
#include <vector>

colls::task<> rank_main(colls::inproc::communicator& comm) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  co_await comm.all_reduce(colls::device_span(data.data(), data.size()));
#else
  co_await comm.all_reduce(std::span(data.data(), data.size()));
#endif
}
