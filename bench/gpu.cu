// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// What colls does on a GPU beside what the GPU can do: ./dev gpu builds and runs this. All ranks
// share one device. Exits with 77 where there is none.

#include <colls/cuda/ipc.hpp>
#include <colls/inproc.hpp>
#include <colls/threads.hpp>

#include <atomic>
#include <thread>

#include "colls_bench/copy_rate.hpp"
#include "gpu_figures.hpp"

namespace {

constexpr std::size_t staged = std::size_t{64} << 20;  // bytes of a staged call

template <class T, std::size_t Inputs>
void kernel(const char* what, colls::cuda::stream& on, double copy) {
  const std::size_t count = large / sizeof(T);
  std::vector<colls::cuda::device_buffer<T>> in;
  std::array<const T*, Inputs> inputs;
  for (std::size_t i = 0; i < Inputs; ++i) {
    in.emplace_back(count);
    check(cudaMemset(in[i].data(), 0, large), "cudaMemset");
    inputs[i] = in[i].data();
  }
  const colls::cuda::device_buffer<T> out(count);
  const double takes =
      on_the_device(on, [&] { reduce_into(out.span(), inputs, colls::plus(), on.ref()); });
  const double rate = static_cast<double>((Inputs + 1) * large) / takes;
  note(what, rate * 1e-9, "GB/s", rate / copy);
}

colls::task<> await_latency(colls::cuda::stream& on) {
  std::vector<double> all;
  for (int i = 0; i < 2000; ++i) {
    const double begin = now();
    co_await on.reached();
    all.push_back(now() - begin);
  }
  note("co_await of an idle stream", median(all) * 1e6, "us");
}

/// Takes so long on the device, and says last that it is done.
__global__ void busy(std::uint64_t nanoseconds, volatile int* done, int number) {
  std::uint64_t begin = 0;
  std::uint64_t at = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(at));
  } while (at - begin < nanoseconds);
  *done = number;
  __threadfence_system();
}

/// From a kernel's end, as another thread sees it that does nothing but look, until who awaited its
/// stream goes on.
colls::task<> resumed_after_kernels(const char* driver) {
  constexpr int times = 200;
  const colls::cuda::on_device here(0);
  colls::cuda::stream on(0);
  colls::cuda::pinned_buffer<int> done(1);
  *done.data() = 0;
  std::array<std::atomic<double>, times> ended{};
  std::thread beside([&] {
    for (int i = 0; i < times; ++i) {
      while (__atomic_load_n(done.data(), __ATOMIC_ACQUIRE) <= i) {
      }
      ended[static_cast<std::size_t>(i)].store(now());
    }
  });
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    busy<<<1, 1, 0, colls::cuda::api::native(on.ref())>>>(1'000'000, done.data(), i + 1);
    co_await on.reached();
    const double resumed = now();
    double end = 0;
    while ((end = ended[static_cast<std::size_t>(i)].load()) == 0) {
    }
    all.push_back(resumed - end);
  }
  beside.join();
  char what[64];
  std::snprintf(what, sizeof what, "resumed after a kernel of 1 ms, %s", driver);
  note(what, median(all) * 1e6, "us");
}

void kernels_and_streams() {
  colls::cuda::stream on(0);
  const double copy = bench::copy_rate();
  note("device copy, 256 MiB", copy * 1e-9, "GB/s");
  kernel<float, 2>("reduce, 2 x 256 MiB float", on, copy);
  kernel<float, 3>("reduce, 3 x 256 MiB float", on, copy);
  kernel<float, 4>("reduce, 4 x 256 MiB float", on, copy);
  kernel<colls::bfloat16, 2>("reduce, 2 x 256 MiB bfloat16", on, copy);
  kernel<colls::bfloat16, 3>("reduce, 3 x 256 MiB bfloat16", on, copy);
  kernel<colls::bfloat16, 4>("reduce, 4 x 256 MiB bfloat16", on, copy);
  colls::inproc_world alone(1);
  colls::sync_wait(alone, await_latency(on));
  colls::sync_wait(alone, resumed_after_kernels("inproc"));
  colls::thread_world one(1);
  colls::sync_wait(one[0], resumed_after_kernels("threads"));
}

colls::task<> staged_calls(colls::threads::communicator& comm) {
  auto gpu = co_await colls::cuda::attach<colls::cuda::staged>(comm, 0);
  const std::size_t count = staged / sizeof(float);
  colls::cuda::device_buffer<float> device(count);
  colls::cuda::pinned_buffer<float> pinned(count);
  std::fill_n(pinned.data(), count, 0.0f);
  colls::cuda::stream on(0);
  on.copy(device.data(), pinned.data(), staged);
  co_await on.reached();
  const auto by_stages = [&] { return gpu.all_reduce(device.span()); };
  const auto on_host = [&] { return comm.all_reduce(std::span(pinned.data(), count)); };
  const auto copies = [&]() -> colls::task<> {
    on.copy(pinned.data(), device.data(), staged);
    co_await on.reached();
  };
  const double staged_takes = co_await of_calls(comm, by_stages);
  const double host_takes = co_await of_calls(comm, on_host);
  const double copy_takes = co_await of_calls(comm, copies);
  if (comm.rank() == 0) {
    const double floor = std::max(host_takes, copy_takes);
    note("pinned copy, 64 MiB, 2 at a time", staged / copy_takes * 1e-9, "GB/s");
    note("host all_reduce between 2 threads, 64 MiB", host_takes * 1e3, "ms");
    note("staged all_reduce between 2 threads, 64 MiB", staged_takes * 1e3, "ms",
         floor / staged_takes);
  }
  co_await gpu.close();
}

/// all_reduce in place where ranks see each other's memory. The floor reads each input once and
/// writes each output once.
colls::task<> mapped_calls(colls::threads::communicator& comm) {
  const colls::cuda::on_device here(0);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(comm, 0);
  co_await comm.barrier();
  const double copy = comm.rank() == 0 ? bench::copy_rate() : 0;
  const std::size_t most = large / sizeof(float);
  const colls::cuda::device_buffer<float> data(most);
  check(cudaMemset(data.data(), 0, large), "cudaMemset");
  for (const std::size_t count : {std::size_t{2}, std::size_t{16 * 1024}, most / 4, most}) {
    const auto call = [&] { return gpu.all_reduce(data.span().subspan(0, count)); };
    const double takes = co_await of_calls(comm, call);
    const double bytes = static_cast<double>(count * sizeof(float));
    char what[64];
    std::snprintf(what, sizeof what, "cuda_ipc all_reduce, 2 threads, %.0f KiB", bytes / 1024);
    if (comm.rank() == 0)
      note(what, takes * 1e6, "us", count < most / 4 ? 0 : 4 * bytes / copy / takes);
  }
  co_await gpu.close();
}

}  // namespace

int main() {
  try {
    (void)colls::cuda::devices();
  } catch (const colls::error& none) {
    std::printf("skipped: %s\n", none.what());
    return 77;
  }
  cudaDeviceProp what{};
  int driver = 0;
  int runtime = 0;
  check(cudaGetDeviceProperties(&what, 0), "cudaGetDeviceProperties");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  kernels_and_streams();
  colls::threads::run(2, staged_calls);
  colls::threads::run(2, mapped_calls);
  std::printf("%s, driver %d, runtime %d; all ranks share one device\n", what.name, driver,
              runtime);
  print_table();
}
