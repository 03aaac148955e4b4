// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The same calls on the memory of devices.

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

/// Elements in the memory of the communicator's device, made and compared on the host by pieces.
/// None of it is freed before the end: peers may have it mapped.
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
    const colls::cuda::on_device here(device_);
    data_ = allocate_ ? lent_.emplace_back(allocate_(n)).data() : own_.emplace_back(n).data();
  }
  std::size_t size() const { return count_; }
  colls::device_span<T> view() const { return {data_, count_}; }

  template <class Value>
  void fill(Value value) {
    by_pieces(0, size(), [&](T* slot, std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) slot[i] = value(first + i);
      copy(view().data() + first, slot, count);
    });
  }
  template <class Value>
  std::uint64_t differ(std::size_t at, std::size_t count, Value value) const {
    std::uint64_t wrong = 0;
    by_pieces(at, count, [&](T* slot, std::size_t first, std::size_t piece) {
      copy(slot, view().data() + first, piece);
      wrong += differing(slot, piece, [&](std::size_t i) { return value(first - at + i); });
    });
    return wrong;
  }

 private:
  template <class Work>
  void by_pieces(std::size_t at, std::size_t count, Work work) const {
    const colls::cuda::on_device here(device_);
    const std::size_t most = std::min(count, (std::size_t{4} << 20) / sizeof(T));
    const colls::cuda::pinned_buffer<T> slot(most);
    for (const std::size_t end = at + count; at < end; at += most) {
      work(slot.data(), at, std::min(most, end - at));
    }
  }
  static void copy(T* to, const T* from, std::size_t count) {
    using namespace colls::cuda;
    check(api::copy(to, from, count * sizeof(T), {}), "cudaMemcpyAsync");
    check(api::synchronize({}), "cudaStreamSynchronize");
  }

  int device_;
  using lent = colls::shared_buffer<T, colls::device_memory>;
  std::function<lent(std::size_t)> allocate_;
  std::vector<lent> lent_;
  std::vector<colls::cuda::device_buffer<T>> own_;
  T* data_ = nullptr;
  std::size_t room_ = 0;
  std::size_t count_ = 0;
};

template <class Model, class World>
colls::task<> measure_by(World& world, const options& how, int device, double rate = 0) {
  auto gpu = co_await colls::cuda::attach<Model>(world, device);
  const colls::cuda::stream on(device);
  colls::options call;
  call.stream = on.ref();
  const auto work = make_workload(gpu, how, call);
  co_await measure(*work, world, how, rate);
  co_await gpu.close();
  // CUDA's manual forbids to free what others have mapped.
  {
    const auto unmapped = std::move(gpu);
  }
  co_await world.barrier();
}

#ifdef HAS_NCCL
/// NCCL takes ranks that share a GPU from 2.30 on; before that only as ranks of several hosts,
/// which talk through sockets.
inline void let_nccl_share(int rank) {
  ::setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0);
  int version = 0;
  if (colls::cuda::nccl_api::version(version) != 0 || version >= 23003) return;
  ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank)).c_str(), 0);
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
  if (rank == 0) std::printf("# NCCL %d takes ranks of one GPU for hosts of a network\n", version);
}
#endif

/// `measure_on_devices`, of any communicator of the host.
template <class World>
colls::task<int> on_devices(World& world, const options& how) {
  std::string absent;
  try {
    (void)colls::cuda::devices();
#ifndef HAS_NCCL
    if (how.transport == "nccl") absent = "compiled without NCCL";
#endif
  } catch (const colls::error& none) {
    absent = none.what();
  }
  if (!absent.empty()) {
    if (world.rank() == 0) std::printf("skipped: %s\n", absent.c_str());
    co_return 77;
  }
  const int device = colls::cuda::device_for(world);
  const colls::cuda::on_device here(device);
  std::vector<colls::cuda::api::device_id> mine(1);
  std::vector<colls::cuda::api::device_id> all(static_cast<std::size_t>(world.size()));
  colls::cuda::check(colls::cuda::api::identify(device, mine[0]), "cudaGetDeviceProperties");
  co_await world.all_gather(mine, all);
  const bool share = std::count(all.begin(), all.end(), mine[0]) == world.size();
  if (world.rank() == 0) {
    std::printf(share ? "# all ranks share one GPU\n" : "# the ranks are on several GPUs\n");
  }

  // The floor of a large call where the ranks share a GPU: what has to be read and written, once.
  const bool staged = how.transport != "cuda_ipc" && how.transport != "nccl";
  const std::vector<std::uint64_t> sizes = how.sizes(1);
  const bool large = std::any_of(sizes.begin(), sizes.end(),
                                 [](std::uint64_t bytes) { return bytes >= 64 << 20; });
  std::vector<double> rate(1);
  if (world.rank() == 0 && share && large && !staged) rate[0] = copy_rate();
  co_await world.broadcast(rate, 0);
  if (world.rank() == 0 && rate[0] != 0) {
    std::printf("# floor: inputs read and outputs written once, as the GPU copies (%.0f GB/s)\n",
                rate[0] * 1e-9);
  }
  if (staged) co_await measure_by<colls::cuda::staged>(world, how, device);
  if (how.transport == "cuda_ipc") {
    co_await measure_by<colls::cuda::cuda_ipc>(world, how, device, rate[0]);
  }
#ifdef HAS_NCCL
  if (how.transport == "nccl") {
    if (share && world.size() > 1) let_nccl_share(world.rank());
    co_await measure_by<colls::cuda::nccl>(world, how, device, rate[0]);
  }
#endif
  co_return 0;
}

}  // namespace bench
