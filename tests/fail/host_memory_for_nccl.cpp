// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: colls: this communicator moves device memory: pass a colls::device_span
#define COLLS_CUDA_STAND_IN
#include <colls/cuda/nccl.hpp>
#include <colls/inproc.hpp>

#include <span>

colls::task<> rank_main(colls::inproc::communicator& comm, float* data) {
  auto gpu = co_await colls::cuda::attach<colls::cuda::nccl>(comm, 0);
#ifdef MUST_NOT_COMPILE
  co_await gpu.all_reduce(std::span(data, 8));
#else
  co_await gpu.all_reduce(colls::device_span(data, 8));
#endif
}
