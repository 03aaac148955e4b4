// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: a reduction of device memory needs <colls/cuda/reduce.cuh> and nvcc
#define COLLS_CUDA_STAND_IN  // only for the CUDA functions
#include <colls/cuda/runtime_api.hpp>
#undef COLLS_CUDA_STAND_IN
#include <colls/cuda/ipc.hpp>
#include <colls/inproc.hpp>

colls::task<> call(colls::inproc::communicator& comm, float* data) {
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(comm, 0);
#ifdef MUST_NOT_COMPILE
  co_await gpu.all_reduce(colls::device_span(data, 8));
#else
  co_await gpu.broadcast(colls::device_span(data, 8), 0);
#endif
}
