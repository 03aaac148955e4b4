// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Calls on device memory, compared with what they should leave: of tests for a GPU, under nvcc.

#include <colls/cuda/attach.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/cuda/stream.hpp>
#include <colls/threads.hpp>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <vector>

inline std::atomic<int> wrong{0};

struct best {
  float value;
  int where;
  friend bool operator==(const best&, const best&) = default;
};
struct better {
  static constexpr bool commutative = true;
  __host__ __device__ best operator()(const best& a, const best& b) const {
    return a.value > b.value || (a.value == b.value && a.where < b.where) ? a : b;
  }
};

/// Host vectors to the device and back, by the stream that the calls follow.
template <class T>
class array {
 public:
  explicit array(std::size_t count) : device_(count), pinned_(count) {}
  colls::task<> fill(colls::cuda::stream& on, std::vector<T> from) {
    if (!from.empty()) std::memcpy(pinned_.data(), from.data(), from.size() * sizeof(T));
    on.copy(device_.data(), pinned_.data(), from.size() * sizeof(T));
    co_return;
  }
  colls::task<> expect(const char* what, colls::cuda::stream& on, std::vector<T> want) {
    on.copy(pinned_.data(), device_.data(), want.size() * sizeof(T));
    co_await on.reached();
    for (std::size_t i = 0; i < want.size(); ++i) {
      if (pinned_.data()[i] == want[i]) continue;
      std::printf("WRONG %s, element %zu of %zu\n", what, i, want.size());
      ++wrong;
      co_return;
    }
  }
  colls::device_span<T> span() const { return device_.span(); }

 private:
  colls::cuda::device_buffer<T> device_;
  colls::cuda::pinned_buffer<T> pinned_;
};

/// Of a call that has ended. What is staged is right, but where memory is seen it is not what is
/// tested here: the log says why.
template <class Communicator, class Call>
void expect_in_place(const char* what, const Communicator& gpu, const Call& call, std::size_t n) {
  if constexpr (requires { gpu.net().here(); }) {
    if (call.copied_bytes() == 0) return;
    std::printf("WRONG %s of %zu elements was staged through the host\n", what, n);
    ++wrong;
  }
}

/// A few calls of a model with `n` elements.
template <class Model, class Transport>
colls::task<> calls(colls::communicator<Transport>& comm, std::size_t n) {
  const int device = colls::cuda::device_for(comm);
  auto gpu = co_await colls::cuda::attach<Model>(comm, device);
  const colls::cuda::on_device here(device);
  colls::cuda::stream on(device);
  colls::options how;
  how.stream = on.ref();
  const auto ranks = static_cast<std::size_t>(gpu.size());
  const auto me = static_cast<std::size_t>(gpu.rank());
  const auto number = [](std::size_t rank, std::size_t i) {
    return static_cast<float>((rank + 1) * (i % 1001));
  };
  const auto one = [&](std::size_t rank, std::size_t i) {
    return best{static_cast<float>((i * 31 + rank * 17) % 101), static_cast<int>(rank)};
  };

  std::vector<float> in(n);
  std::vector<float> sum(n);
  std::vector<best> candidates(n);
  std::vector<best> winners(n);
  for (std::size_t i = 0; i < n; ++i) {
    in[i] = number(me, i);
    candidates[i] = one(me, i);
    winners[i] = one(0, i);
    for (std::size_t r = 0; r < ranks; ++r) {
      sum[i] += number(r, i);
      winners[i] = better()(winners[i], one(r, i));
    }
  }
  array<float> data(n);
  co_await data.fill(on, in);
  {
    auto summed = gpu.all_reduce(data.span(), how);
    co_await summed;
    expect_in_place("all_reduce", gpu, summed, n);
  }
  co_await data.expect("all_reduce", on, sum);

  if constexpr (requires { gpu.net().here(); }) {
    array<float> round(n);  // where each rank has a GPU of its own
    co_await round.fill(on, in);
    colls::options by_ring = how;
    by_ring.algorithm = colls::algorithm::ring;
    co_await gpu.all_reduce(round.span(), by_ring);
    co_await round.expect("all_reduce by a ring", on, sum);
  }

  array<best> pairs(n);
  co_await pairs.fill(on, candidates);
  co_await gpu.all_reduce(pairs.span(), better(), how);
  co_await pairs.expect("all_reduce of structs", on, winners);

  array<float> sent(n);
  co_await sent.fill(on, in);
  {
    auto call = gpu.broadcast(sent.span(), 0, how);
    co_await call;
    expect_in_place("broadcast", gpu, call, n);
  }
  std::vector<float> first(n);
  for (std::size_t i = 0; i < n; ++i) first[i] = number(0, i);
  co_await sent.expect("broadcast", on, first);

  array<float> halves(n);
  co_await halves.fill(on, in);
  array<float> apart(n);
  co_await gpu.all_reduce(halves.span(), apart.span(), colls::average(), how);
  std::vector<float> mean = sum;
  for (float& x : mean) x /= static_cast<float>(ranks);
  co_await apart.expect("average", on, mean);

  array<float> before(n);
  co_await before.fill(on, in);
  {
    auto call = gpu.scan(before.span(), how);
    co_await call;
    expect_in_place("scan", gpu, call, n);
  }
  std::vector<float> prefix(n);
  for (std::size_t i = 0; i < n * (me + 1); ++i) prefix[i % n] += number(i / n, i % n);
  co_await before.expect("scan", on, prefix);

  array<float> own(n);
  array<float> all(n * ranks);
  co_await own.fill(on, in);
  co_await gpu.all_gather(own.span(), all.span(), how);
  std::vector<float> everything(n * ranks);
  for (std::size_t i = 0; i < n * ranks; ++i) everything[i] = number(i / n, i % n);
  co_await all.expect("all_gather", on, everything);
  array<float> turned(n * ranks);
  co_await gpu.all_to_all(all.span(), turned.span(), how);
  for (std::size_t i = 0; i < n * ranks; ++i) everything[i] = number(me, i % n);
  co_await turned.expect("all_to_all", on, everything);

  array<float> blocks(n * ranks);
  array<float> block(n);
  for (std::size_t i = 0; i < n * ranks; ++i) everything[i] = number(me, i % n);
  co_await blocks.fill(on, everything);
  co_await gpu.reduce_scatter(blocks.span(), block.span(), how);
  co_await block.expect("reduce_scatter", on, sum);
  co_await gpu.close();
  // CUDA's manual forbids to free what others have mapped.
  { const auto unmapped = std::move(gpu); }
  co_await comm.barrier();
}

inline bool is_there() {
  try {
    std::printf("%d devices\n", colls::cuda::devices());
    return true;
  } catch (const colls::error& none) {
    std::printf("%s\n", none.what());
    return false;
  }
}

/// Where there is no device: attaching ends with an error of colls.
template <class Model, class Transport>
colls::task<> attach_to_nothing(colls::communicator<Transport>& comm) {
  bool refused = false;
  try {
    auto gpu = co_await colls::cuda::attach<Model>(comm, 0);
  } catch (const colls::error& thrown) {
    refused = thrown.code() == colls::errc::no_device;
  }
  wrong += refused ? 0 : 1;
}

/// A program of two threads.
template <class Model>
int between_threads() {
  using colls::threads::communicator;
  using colls::threads::run;
  if (!is_there()) {
    run(2, [](communicator& comm) { return attach_to_nothing<Model>(comm); });
    return wrong;
  }
  for (const std::size_t n : {1ul, 1000ul, 1'000'003ul}) {
    run(2, [n](communicator& comm) { return calls<Model>(comm, n); });
    std::printf("ok    2 threads, %zu elements\n", n);
  }
  return wrong;
}
