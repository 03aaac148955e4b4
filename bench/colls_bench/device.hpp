// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Measures collectives on device memory.

#include "copy_rate.hpp"
#include "measure.hpp"

#include <colls/cuda/ipc.hpp>
#include <colls/cuda/reduce.cuh>

#include <cstdlib>
#include <functional>

#ifdef HAS_NCCL
#include <colls/cuda/nccl.hpp>
#endif

namespace bench {

/// Elements in the memory of the communicator's device. The host generates and compares them piece
/// by piece. No memory is freed before the end, because peers may have mapped it.
template <class Transport, class T>
  requires std::is_same_v<colls::transport_memory_t<Transport>, colls::device_memory>
class elements<colls::communicator<Transport>, T> {
 public:
  elements(colls::communicator<Transport>& comm, bool registered) : device_(comm.net().device()) {
    if (registered) {
      allocate_ = [&comm](std::size_t n) { return comm.template allocate<T>(n); };
    }
  }
  void resize(std::size_t n) {
    count_ = n;
    if (n <= room_) return;
    room_ = n;
    const colls::cuda::on_device current(device_);
    data_ = allocate_ ? shared_.emplace_back(allocate_(n)).data() : private_.emplace_back(n).data();
  }
  std::size_t size() const { return count_; }
  colls::device_span<T> view() const { return {data_, count_}; }

  template <class Value>
  void fill(Value value) {
    for_each_piece(0, size(), [&](T* slot, std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) slot[i] = value(first + i);
      copy(view().data() + first, slot, count);
    });
  }
  template <class Value>
  std::uint64_t differ(std::size_t offset, std::size_t count, Value value) const {
    std::uint64_t wrong = 0;
    for_each_piece(offset, count, [&](T* slot, std::size_t first, std::size_t piece) {
      copy(slot, view().data() + first, piece);
      wrong +=
          count_differences(slot, piece, [&](std::size_t i) { return value(first - offset + i); });
    });
    return wrong;
  }

 private:
  template <class Callback>
  void for_each_piece(std::size_t offset, std::size_t count, Callback callback) const {
    const colls::cuda::on_device current(device_);
    const std::size_t piece = std::min(count, (std::size_t{4} << 20) / sizeof(T));
    const colls::cuda::pinned_buffer<T> slot(piece);
    for (const std::size_t end = offset + count; offset < end; offset += piece) {
      callback(slot.data(), offset, std::min(piece, end - offset));
    }
  }
  static void copy(T* dest, const T* source, std::size_t count) {
    using namespace colls::cuda;
    check(api::copy(dest, source, count * sizeof(T), {}), "cudaMemcpyAsync");
    check(api::synchronize({}), "cudaStreamSynchronize");
  }

  int device_;
  using shared = colls::shared_buffer<T, colls::device_memory>;
  std::function<shared(std::size_t)> allocate_;
  std::vector<shared> shared_;
  std::vector<colls::cuda::device_buffer<T>> private_;
  T* data_ = nullptr;
  std::size_t room_ = 0;
  std::size_t count_ = 0;
};

template <class Model, class World>
colls::task<> measure_with(World& world, const options& opts, int device, double rate = 0) {
  auto gpu = co_await colls::cuda::attach<Model>(world, device);
  const colls::cuda::stream stream(device);
  colls::options call;
  call.stream = stream.ref();
  const auto work = make_workload(gpu, opts, call);
  co_await measure(*work, world, opts, rate);
  co_await gpu.close();
  // CUDA forbids to free memory that other processes have mapped: all ranks unmap first.
  {
    const auto unmapped = std::move(gpu);
  }
  co_await world.barrier();
}

#ifdef HAS_NCCL
/// Lets several ranks use one GPU. NCCL supports that from 2.30 on. Earlier versions accept such
/// ranks only as ranks of different hosts, which communicate through sockets.
inline void allow_ranks_on_one_gpu(int rank) {
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  int version = 0;
  if (colls::cuda::nccl_api::version(version) != 0 || version >= 23003) return;
  ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 0);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  if (rank == 0) std::printf("# NCCL %d treats ranks of one GPU as hosts of a network\n", version);
}
#endif

/// `measure_on_devices` for any communicator of host memory.
template <class World>
colls::task<int> on_devices(World& world, const options& opts) {
  std::string absent;
  try {
    (void)colls::cuda::devices();
#ifndef HAS_NCCL
    if (opts.transport == "nccl") absent = "compiled without NCCL";
#endif
  } catch (const colls::error& none) {
    absent = none.what();
  }
  if (!absent.empty()) {
    if (world.rank() == 0) std::printf("skipped: %s\n", absent.c_str());
    co_return 77;
  }
  const int device = colls::cuda::device_for(world);
  const colls::cuda::on_device current(device);
  std::vector<colls::cuda::api::device_id> own(1);
  std::vector<colls::cuda::api::device_id> all(static_cast<std::size_t>(world.size()));
  colls::cuda::check(colls::cuda::api::identify(device, own[0]), "cudaGetDeviceProperties");
  co_await world.all_gather(own, all);
  const bool share = std::count(all.begin(), all.end(), own[0]) == world.size();
  if (world.rank() == 0) {
    std::printf(share ? "# all ranks share one GPU\n" : "# the ranks are on several GPUs\n");
  }

  // The floor of a large call if the ranks share a GPU: every input is read once, every output is
  // written once.
  const bool staged = opts.transport != "cuda_ipc" && opts.transport != "nccl";
  const std::vector<std::uint64_t> sizes = opts.sizes(1);
  const bool large = std::any_of(sizes.begin(), sizes.end(),
                                 [](std::uint64_t bytes) { return bytes >= 64 << 20; });
  std::vector<double> rate(1);
  if (world.rank() == 0 && share && large && !staged) rate[0] = copy_rate();
  co_await world.broadcast(rate, 0);
  if (world.rank() == 0 && rate[0] != 0) {
    std::printf("# floor: inputs read and outputs written once, as the GPU copies (%.0f GB/s)\n",
                rate[0] * 1e-9);
  }
  if (staged) co_await measure_with<colls::cuda::staged>(world, opts, device);
  if (opts.transport == "cuda_ipc") {
    co_await measure_with<colls::cuda::cuda_ipc>(world, opts, device, rate[0]);
  }
#ifdef HAS_NCCL
  if (opts.transport == "nccl") {
    if (share && world.size() > 1) allow_ranks_on_one_gpu(world.rank());
    co_await measure_with<colls::cuda::nccl>(world, opts, device, rate[0]);
  }
#endif
  co_return 0;
}

}  // namespace bench
