// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: the data is a temporary that would be destroyed before the operation ends
#define COLLS_CUDA_STAND_IN
#include <colls/cuda/staged.hpp>
#include <colls/inproc.hpp>

using device_communicator =
    colls::communicator<colls::cuda::staged_transport<colls::inproc_transport>>;

colls::task<> rank_main(device_communicator& gpu) {
#ifdef MUST_NOT_COMPILE
  co_await gpu.all_reduce(gpu.allocate<int>(8));
#else
  auto data = gpu.allocate<int>(8);
  co_await gpu.all_reduce(data);
  co_await gpu.all_reduce(data.span());
#endif
}
