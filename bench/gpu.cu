// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Compares the speed of colls on a GPU with what the GPU can do; ./dev gpu builds and runs it. All
// ranks share one device. Without a device the exit status is 77.

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
void kernel(const char* name, colls::cuda::stream& stream, double copy_rate) {
  const std::size_t count = large / sizeof(T);
  std::vector<colls::cuda::device_buffer<T>> in;
  std::array<const T*, Inputs> inputs;
  for (std::size_t i = 0; i < Inputs; ++i) {
    in.emplace_back(count);
    check(cudaMemset(in[i].data(), 0, large), "cudaMemset");
    inputs[i] = in[i].data();
  }
  const colls::cuda::device_buffer<T> out(count);
  const double takes = seconds_on_device(
      stream, [&] { reduce_into(out.span(), inputs, colls::plus(), stream.ref()); });
  const double rate = static_cast<double>((Inputs + 1) * large) / takes;
  add_figure(name, rate * 1e-9, "GB/s", rate / copy_rate);
}

colls::task<> await_latency(colls::cuda::stream& stream) {
  std::vector<double> all;
  for (int i = 0; i < 2000; ++i) {
    const double begin = now();
    co_await stream.reached();
    all.push_back(now() - begin);
  }
  add_figure("co_await of an idle stream", median(all) * 1e6, "us");
}

/// Spins for the given time on the device, and then writes `number` to `done`.
__global__ void busy(std::uint64_t nanoseconds, volatile int* done, int number) {
  std::uint64_t begin = 0;
  std::uint64_t time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  } while (time - begin < nanoseconds);
  *done = number;
  __threadfence_system();
}

/// Measures the time from a kernel's end until the coroutine that awaits its stream resumes.
/// Another thread, which only polls, observes the kernel's end.
colls::task<> resumed_after_kernels(const char* driver) {
  constexpr int times = 200;
  const colls::cuda::on_device current(0);
  colls::cuda::stream stream(0);
  colls::cuda::pinned_buffer<int> done(1);
  *done.data() = 0;
  std::array<std::atomic<double>, times> ended{};
  std::thread observer([&] {
    for (int i = 0; i < times; ++i) {
      while (__atomic_load_n(done.data(), __ATOMIC_ACQUIRE) <= i) {
      }
      ended[static_cast<std::size_t>(i)].store(now());
    }
  });
  std::vector<double> all;
  for (int i = 0; i < times; ++i) {
    busy<<<1, 1, 0, colls::cuda::api::native(stream.ref())>>>(1'000'000, done.data(), i + 1);
    co_await stream.reached();
    const double resumed = now();
    double end = 0;
    while ((end = ended[static_cast<std::size_t>(i)].load()) == 0) {
    }
    all.push_back(resumed - end);
  }
  observer.join();
  char name[64];
  std::snprintf(name, sizeof name, "resumed after a kernel of 1 ms, %s", driver);
  add_figure(name, median(all) * 1e6, "us");
}

void kernels_and_streams() {
  colls::cuda::stream stream(0);
  const double copy = bench::copy_rate();
  add_figure("device copy, 256 MiB", copy * 1e-9, "GB/s");
  kernel<float, 2>("reduce, 2 x 256 MiB float", stream, copy);
  kernel<float, 3>("reduce, 3 x 256 MiB float", stream, copy);
  kernel<float, 4>("reduce, 4 x 256 MiB float", stream, copy);
  kernel<colls::bfloat16, 2>("reduce, 2 x 256 MiB bfloat16", stream, copy);
  kernel<colls::bfloat16, 3>("reduce, 3 x 256 MiB bfloat16", stream, copy);
  kernel<colls::bfloat16, 4>("reduce, 4 x 256 MiB bfloat16", stream, copy);
  colls::inproc_world alone(1);
  colls::sync_wait(alone, await_latency(stream));
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
  colls::cuda::stream stream(0);
  stream.copy(device.data(), pinned.data(), staged);
  co_await stream.reached();
  const auto by_stages = [&] { return gpu.all_reduce(device.span()); };
  const auto on_host = [&] { return comm.all_reduce(std::span(pinned.data(), count)); };
  const auto copies = [&]() -> colls::task<> {
    stream.copy(pinned.data(), device.data(), staged);
    co_await stream.reached();
  };
  const double staged_takes = co_await seconds_of_call(comm, by_stages);
  const double host_takes = co_await seconds_of_call(comm, on_host);
  const double copy_takes = co_await seconds_of_call(comm, copies);
  if (comm.rank() == 0) {
    const double floor = std::max(host_takes, copy_takes);
    add_figure("pinned copy, 64 MiB, 2 at a time", staged / copy_takes * 1e-9, "GB/s");
    add_figure("host all_reduce between 2 threads, 64 MiB", host_takes * 1e3, "ms");
    add_figure("staged all_reduce between 2 threads, 64 MiB", staged_takes * 1e3, "ms",
               floor / staged_takes);
  }
  co_await gpu.close();
}

/// Measures all_reduce in place on memory that both ranks have mapped. The floor reads each input
/// once and writes each output once.
colls::task<> mapped_calls(colls::threads::communicator& comm) {
  const colls::cuda::on_device current(0);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(comm, 0);
  co_await comm.barrier();
  const double copy = comm.rank() == 0 ? bench::copy_rate() : 0;
  const std::size_t max_count = large / sizeof(float);
  const colls::cuda::device_buffer<float> data(max_count);
  check(cudaMemset(data.data(), 0, large), "cudaMemset");
  for (const std::size_t count :
       {std::size_t{2}, std::size_t{16 * 1024}, max_count / 4, max_count}) {
    const auto call = [&] { return gpu.all_reduce(data.span().subspan(0, count)); };
    const double takes = co_await seconds_of_call(comm, call);
    const double bytes = static_cast<double>(count * sizeof(float));
    char name[64];
    std::snprintf(name, sizeof name, "cuda_ipc all_reduce, 2 threads, %.0f KiB", bytes / 1024);
    if (comm.rank() == 0) {
      const double share = count < max_count / 4 ? 0 : 4 * bytes / copy / takes;
      add_figure(name, takes * 1e6, "us", share);
    }
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
  cudaDeviceProp properties{};
  int driver = 0;
  int runtime = 0;
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  kernels_and_streams();
  colls::threads::run(2, staged_calls);
  colls::threads::run(2, mapped_calls);
  std::printf("%s, driver %d, runtime %d; all ranks share one device\n", properties.name, driver,
              runtime);
  print_table();
}
