// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// What a call by NCCL takes beside NCCL's own function and a wait for its stream: one rank, and two
// where NCCL lets two ranks share a GPU or there are two. Exits with 77 where there is none.

#include <colls/cuda/nccl.hpp>
#include <colls/threads.hpp>

#include "gpu_figures.hpp"

#include <cstdlib>

namespace {

void check_plain(ncclResult_t how, const char* call) {
  colls::cuda::check_nccl(static_cast<int>(how), call);
}

colls::task<> beside_nccl(colls::threads::communicator& comm) {
  const int device = colls::cuda::device_for(comm);
  const colls::cuda::on_device here(device);
  auto gpu = co_await colls::cuda::attach<colls::cuda::nccl>(comm, device);
  ncclUniqueId id{};
  if (comm.rank() == 0) check_plain(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const std::span<char> letters(id.internal);
  co_await comm.broadcast(letters, 0);
  ncclComm_t plain = nullptr;
  check_plain(ncclCommInitRank(&plain, comm.size(), id, comm.rank()), "ncclCommInitRank");

  colls::cuda::stream on(device);
  colls::options how;
  how.stream = on.ref();
  const std::size_t most = large / sizeof(float);
  const colls::cuda::device_buffer<float> data(most);
  check(cudaMemset(data.data(), 0, large), "cudaMemset");
  for (const std::size_t count : {std::size_t{2}, std::size_t{16 * 1024}, most / 4, most}) {
    const auto by_colls = [&] { return gpu.all_reduce(data.span().subspan(0, count), how); };
    const auto by_nccl = [&]() -> colls::task<> {
      check_plain(ncclAllReduce(data.data(), data.data(), count, ncclFloat, ncclSum, plain,
                                colls::cuda::api::native(on.ref())),
                  "ncclAllReduce");
      check(cudaStreamSynchronize(colls::cuda::api::native(on.ref())), "cudaStreamSynchronize");
      co_return;
    };
    const double floor = co_await of_calls(comm, by_nccl);
    const double takes = co_await of_calls(comm, by_colls);
    if (comm.rank() != 0) continue;
    const double kib = static_cast<double>(count * sizeof(float)) / 1024;
    // Of one rank NCCL launches at once, without the thread that it makes for a call of several.
    const char* const ranks = comm.size() == 1 ? "1 rank, no goal" : "2 ranks";
    char what[64];
    std::snprintf(what, sizeof what, "ncclAllReduce alone, %s, %.0f KiB", ranks, kib);
    note(what, floor * 1e6, "us");
    std::snprintf(what, sizeof what, "nccl all_reduce, %s, %.0f KiB", ranks, kib);
    note(what, takes * 1e6, "us", floor / takes);
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
