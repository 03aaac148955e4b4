// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Calls on device memory whose results are compared with the expected ones: for tests on a GPU,
// compiled by nvcc. tests/net/cuda_ipc.cpp makes them on the stand-in.

#include <colls/cuda/reduce.cuh>
#include <colls/cuda/stream.hpp>
#include <colls/threads.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "../support/device_refusals.hpp"

inline std::atomic<int> wrong{0};

struct best {
  float value;
  int where;
  friend bool operator==(const best&, const best&) = default;
};
struct better {
  static constexpr bool commutative = true;
  COLLS_HOST_DEVICE best operator()(const best& a, const best& b) const {
    return a.value > b.value || (a.value == b.value && a.where < b.where) ? a : b;
  }
};

/// A user of device_calls.hpp. One stream writes the contents of buffers; another stream, which
/// does not follow the first, reads the results. No memory is freed between calls: freeing waits
/// for the kernels of all ranks of a GPU, and kernels of NCCL wait for other ranks.
class user {
 public:
  explicit user(int device) : memory_(device), pinned_(device), writes_(device), reads_(device) {}

  template <class T>
  class buffer {
   public:
    buffer(user& of, std::size_t count)
        : block_(std::make_unique<colls::cuda::device_pool::block>(of.memory_, count * sizeof(T))),
          count_(count) {}

    T* data() const { return reinterpret_cast<T*>(block_->data()); }
    std::size_t size() const { return count_; }
    colls::device_span<T> span() const { return {data(), count_}; }

   private:
    std::unique_ptr<colls::cuda::device_pool::block> block_;
    std::size_t count_;
  };

  colls::options on_stream() const {
    colls::options how;
    how.stream = writes_.ref();
    return how;
  }
  template <class T>
  buffer<T> holding(const std::vector<T>& all) {
    buffer<T> there(*this, all.size());
    const std::size_t size = all.size() * sizeof(T);
    const auto& from = uploads_.emplace_back(pinned_, size);
    if (size != 0) std::memcpy(from.data(), all.data(), size);
    writes_.copy(there.data(), from.data(), size);
    return there;
  }
  template <class T>
  colls::task<> expect(const char* what, const buffer<T>& got, const std::vector<T>& want) {
    const colls::cuda::pinned_pool::block here(pinned_, got.size() * sizeof(T));
    reads_.copy(here.data(), got.data(), got.size() * sizeof(T));
    co_await reads_.reached();
    co_await writes_.reached();
    uploads_.clear();
    const T* const first = reinterpret_cast<const T*>(here.data());
    const auto differs = std::mismatch(first, first + got.size(), want.begin(), want.end());
    if (differs.first == first + got.size() && differs.second == want.end()) co_return;
    std::printf("WRONG %s, element %td of %zu\n", what, differs.first - first, want.size());
    ++wrong;
  }
  void capture(bool begins);

 private:
  colls::cuda::device_pool memory_;
  colls::cuda::pinned_pool pinned_;
  std::deque<colls::cuda::pinned_pool::block> uploads_;
  colls::cuda::stream writes_;
  colls::cuda::stream reads_;
};

#ifdef __CUDACC__
inline void user::capture(bool begins) {
  auto* const on = static_cast<cudaStream_t>(writes_.ref().handle);
  cudaGraph_t graph = nullptr;
  const cudaError_t bad = begins ? cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal)
                                 : cudaStreamEndCapture(on, &graph);
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  if (bad == cudaSuccess) return;
  std::printf("WRONG a capture: %s\n", cudaGetErrorString(bad));
  ++wrong;
}
#endif

/// An all_reduce by `op` of `n` elements of type T; element i of a rank is `at(rank, i)`.
template <class T, class Op, class Communicator, class At>
colls::task<> reduction(const char* what, user& by, Communicator& gpu, std::size_t n, Op op,
                        const At& at) {
  const auto of = [&](int rank) {
    return device_calls::made<T>(n, [&](std::size_t i) { return at(rank, i); });
  };
  auto data = by.holding(of(gpu.rank()));
  const auto how = by.on_stream();
  co_await gpu.all_reduce(data.span(), op, how);
  std::vector<T> all = of(0);
  for (int r = 1; r < gpu.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i) all[i] = op(all[i], at(r, i));
  }
  co_await by.expect(what, data, all);
}

/// Calls of ranks that can access each other's memory must not be staged. If they are, the log says
/// why.
template <class Communicator>
colls::task<> in_place(user& by, Communicator& gpu, std::size_t n) {
  const auto data = by.holding(device_calls::numbers(gpu.rank(), n));
  const auto how = by.on_stream();
  auto sum = gpu.all_reduce(data.span(), how);
  co_await sum;
  auto sent = gpu.broadcast(data.span(), 0, how);
  co_await sent;
  auto prefix = gpu.scan(data.span(), how);
  co_await prefix;
  auto first = gpu.reduce(data.span(), 0, how);
  co_await first;
  const auto staged =
      sum.copied_bytes() + sent.copied_bytes() + prefix.copied_bytes() + first.copied_bytes();
  if (staged != 0) {
    std::printf("WRONG %zu elements were staged through the host\n", n);
    ++wrong;
  }
  const auto round = by.holding(device_calls::numbers(gpu.rank(), n));
  colls::options by_ring = how;
  by_ring.algorithm = colls::algorithm::ring;
  co_await gpu.all_reduce(round.span(), by_ring);
  const std::vector<device_calls::number> summed = device_calls::sums(gpu.size(), n);
  co_await by.expect("all_reduce by a ring", round, summed);
}

/// Makes every call of a model, with `n` elements.
template <class Model, class Transport>
colls::task<> calls(colls::communicator<Transport>& comm, std::size_t n) {
  const int device = colls::cuda::device_for(comm);
  auto gpu = co_await colls::cuda::attach<Model>(comm, device);
  user by(device);
  co_await device_calls::every_call(by, gpu, n);

  co_await reduction<float>("sum of floats", by, gpu, n, colls::plus(), device_calls::small);
  const auto candidate = [](int rank, std::size_t i) {
    return best{device_calls::small(rank, i), rank};
  };
  co_await reduction<best>("best of structs", by, gpu, n, better(), candidate);

  if constexpr (requires { gpu.net().peers(); }) co_await in_place(by, gpu, n);

  const std::vector<device_calls::refusal> good = co_await device_calls::refusals(by, gpu);
  for (const auto& each : good) {
    const std::string ended = make_error_code(each.code).message();
    std::printf("WRONG %s: %s\n", each.what,
                each.code == colls::errc{} ? "accepted" : ended.c_str());
    ++wrong;
  }
  {
    auto turned = co_await gpu.split(0, -gpu.rank());
    co_await device_calls::every_message(by, turned, n);
    co_await turned.close();
  }
  co_await gpu.close();
  // CUDA's manual forbids freeing memory that other processes have mapped.
  {
    const auto unmapped = std::move(gpu);
  }
  co_await comm.barrier();
}

inline bool has_device() {
  try {
    std::printf("%d devices\n", colls::cuda::devices());
    return true;
  } catch (const colls::error& none) {
    std::printf("%s\n", none.what());
    return false;
  }
}

/// On a machine without a device: attaching fails with no_device.
template <class Model, class Transport>
colls::task<> attach_without_device(colls::communicator<Transport>& comm) {
  bool refused = false;
  try {
    auto gpu = co_await colls::cuda::attach<Model>(comm, 0);
  } catch (const colls::error& thrown) {
    refused = thrown.code() == colls::errc::no_device;
  }
  wrong += refused ? 0 : 1;
}

/// The main function of a program whose two ranks are threads.
template <class Model>
int between_threads() {
  using colls::threads::communicator;
  using colls::threads::run;
  if (!has_device()) {
    run(2, [](communicator& comm) { return attach_without_device<Model>(comm); });
    return wrong;
  }
  for (const std::size_t n : {1ul, 1000ul, 1'000'003ul}) {
    run(2, [n](communicator& comm) { return calls<Model>(comm, n); });
    std::printf("ok    2 threads, %zu elements\n", n);
  }
  return wrong;
}
