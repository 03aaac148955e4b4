// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls between threads by NCCL. NCCL supports two ranks on one GPU since 2.30, if the environment
// enables it. An older NCCL refuses them, which is an error of colls on both ranks. Without a GPU
// this tests that the program compiles and links, and that attaching fails with an error of colls.

#include <colls/cuda/nccl.hpp>

#include "calls.hpp"

#include <cstdlib>

int main() {
  using colls::cuda::nccl;
  using colls::threads::communicator;
  using colls::threads::run;
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // a first launch may wait for other kernels
  ::setenv("NCCL_MAX_CTAS", "4", 1);
  if (!has_device()) return between_threads<nccl>() == 0 ? 0 : 1;
  int version = 0;
  (void)colls::cuda::nccl_api::version(version);
  std::printf("NCCL %d, compiled with the header of %d\n", version,
              colls::cuda::nccl_api::header_version);
  for (const std::size_t n : {1ul, 1000ul, 1'000'003ul}) {
    run(1, [n](communicator& comm) { return calls<nccl>(comm, n); });
    std::printf("ok    1 rank, %zu elements\n", n);
  }
  if (colls::cuda::devices() > 1 || version >= 23003) return between_threads<nccl>() == 0 ? 0 : 1;
  run(2, [](communicator& comm) -> colls::task<> {
    try {
      auto gpu = co_await colls::cuda::attach<nccl>(comm, 0);
    } catch (const colls::error& refused) {
      std::printf("ok    2 ranks on one GPU are refused: %s\n", refused.what());
      co_return;
    }
    std::printf("WRONG 2 ranks on one GPU are not refused\n");
    ++wrong;
  });
  return wrong == 0 ? 0 : 1;
}
