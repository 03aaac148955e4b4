// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Compares a call through NCCL with NCCL's own function followed by a wait for its stream: with one
// rank, and with two if there are two GPUs or NCCL supports two ranks on one. Without a GPU the
// exit status is 77.

#include <colls/cuda/nccl.hpp>
#include <colls/threads.hpp>

#include "gpu_figures.hpp"

#include <cstdlib>

namespace {

void check_plain(ncclResult_t status, const char* call) {
  colls::cuda::check_nccl(static_cast<int>(status), call);
}

colls::task<> beside_nccl(colls::threads::communicator& comm) {
  const int device = colls::cuda::device_for(comm);
  const colls::cuda::on_device current(device);
  auto gpu = co_await colls::cuda::attach<colls::cuda::nccl>(comm, device);
  ncclUniqueId id{};
  if (comm.rank() == 0) check_plain(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const std::span<char> bytes(id.internal);
  co_await comm.broadcast(bytes, 0);
  ncclComm_t plain = nullptr;
  check_plain(ncclCommInitRank(&plain, comm.size(), id, comm.rank()), "ncclCommInitRank");

  colls::cuda::stream stream(device);
  colls::options opts;
  opts.stream = stream.ref();
  const std::size_t max_count = large / sizeof(float);
  const colls::cuda::device_buffer<float> data(max_count);
  check(cudaMemset(data.data(), 0, large), "cudaMemset");
  for (const std::size_t count :
       {std::size_t{2}, std::size_t{16 * 1024}, max_count / 4, max_count}) {
    const auto by_colls = [&] { return gpu.all_reduce(data.span().subspan(0, count), opts); };
    const auto by_nccl = [&]() -> colls::task<> {
      check_plain(ncclAllReduce(data.data(), data.data(), count, ncclFloat, ncclSum, plain,
                                colls::cuda::api::native(stream.ref())),
                  "ncclAllReduce");
      check(cudaStreamSynchronize(colls::cuda::api::native(stream.ref())), "cudaStreamSynchronize");
      co_return;
    };
    const double floor = co_await seconds_of_call(comm, by_nccl);
    const double takes = co_await seconds_of_call(comm, by_colls);
    if (comm.rank() != 0) continue;
    const double kib = static_cast<double>(count * sizeof(float)) / 1024;
    // With one rank NCCL launches at once. With several it creates a thread for each call.
    const char* const ranks = comm.size() == 1 ? "1 rank, no goal" : "2 ranks";
    char name[64];
    std::snprintf(name, sizeof name, "ncclAllReduce alone, %s, %.0f KiB", ranks, kib);
    add_figure(name, floor * 1e6, "us");
    std::snprintf(name, sizeof name, "nccl all_reduce, %s, %.0f KiB", ranks, kib);
    add_figure(name, takes * 1e6, "us", floor / takes);
  }
  (void)ncclCommDestroy(plain);
  co_await gpu.close();
}

}  // namespace

int main() {
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  ::setenv("CUDA_MODULE_LOADING", "EAGER", 1);  // a kernel's first launch may wait for others
  ::setenv("NCCL_MAX_CTAS", "4", 1);
  int devices = 0;
  try {
    devices = colls::cuda::devices();
  } catch (const colls::error& none) {
    std::printf("skipped: %s\n", none.what());
    return 77;
  }
  int version = 0;
  check_plain(ncclGetVersion(&version), "ncclGetVersion");
  colls::threads::run(1, beside_nccl);
  if (devices > 1 || version >= 23003) colls::threads::run(2, beside_nccl);
  std::printf("NCCL %d, %d devices%s\n", version, devices,
              devices == 1 && version >= 23003 ? ": two ranks share one" : "");
  print_table();
}
