// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: a reduction of device memory needs <colls/cuda/reduce.cuh> and nvcc
#define COLLS_CUDA_STAND_IN
#include <colls/cuda/nccl.hpp>
#include <colls/inproc.hpp>

using device_communicator =
    colls::communicator<colls::cuda::nccl_transport<colls::inproc_transport>>;

colls::task<> rank_main(device_communicator& gpu, float* data) {
  const colls::device_span mine(data, 8);
#ifdef MUST_NOT_COMPILE
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  co_await gpu.all_reduce(mine, larger);
#else
  co_await gpu.all_reduce(mine, colls::maximum());
#endif
}
