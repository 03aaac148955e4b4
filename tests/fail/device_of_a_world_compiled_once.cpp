// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// build error: a file that attaches a device to a world includes <colls/interprocess.hpp>
#define COLLS_CUDA_STAND_IN  // only for the CUDA functions
#include <colls/cuda/runtime_api.hpp>
#undef COLLS_CUDA_STAND_IN
#define COLLS_SEPARATE_COMPILATION
#ifdef MUST_NOT_COMPILE
#include <colls/run.hpp>
#else
#include <colls/interprocess.hpp>
#include <colls/run.hpp>
#endif
#include <colls/cuda/staged.hpp>

colls::task<> call(colls::world& world) {
  const auto gpu = co_await colls::cuda::attach<colls::cuda::staged>(world, 0);
  (void)gpu;
}
