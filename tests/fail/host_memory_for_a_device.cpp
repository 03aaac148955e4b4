// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this communicator moves device memory: pass a colls::device_span
#define COLLS_CUDA_STAND_IN
#include <colls/cuda/staged.hpp>
#include <colls/inproc.hpp>

#include <vector>

using device_communicator =
    colls::communicator<colls::cuda::staged_transport<colls::inproc_transport>>;

colls::task<> rank_main(device_communicator& gpu) {
  std::vector<int> data(8);
#ifdef MUST_NOT_COMPILE
  co_await gpu.all_reduce(data);
#else
  co_await gpu.all_reduce(colls::device_span(data.data(), data.size()));
#endif
}
