// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// What colls does on a GPU beside what the GPU can do: ./dev gpu builds and runs this. All ranks share
// one device. Exits with 77 where there is none.

#include <colls/cuda/staged.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/inproc.hpp>
#include <colls/threads.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

namespace {

using colls::cuda::check;

constexpr std::size_t large = std::size_t{256} << 20;   // bytes of a buffer of the kernels
constexpr std::size_t staged = std::size_t{64} << 20;   // bytes of a staged call
constexpr int repeats = 15;

struct line {
  char what[64];
  double got;
  const char* unit;
  double share;  // of the floor beside it; 0: none
};
std::vector<line> table;

void note(const char* what, double got, const char* unit, double share = 0) {
  line made{{}, got, unit, share};
  std::snprintf(made.what, sizeof made.what, "%s", what);
  table.push_back(made);
}

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}
double median(std::vector<double> all) {
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

/// Seconds on the device that `enqueue(stream)` takes, the median of some.
template <class Enqueue>
double on_the_device(colls::cuda::stream& on, const Enqueue& enqueue) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> all;
  for (int i = 0; i < repeats + 3; ++i) {
    check(cudaEventRecord(begin, colls::cuda::api::native(on.ref())), "cudaEventRecord");
    enqueue();
    check(cudaEventRecord(end, colls::cuda::api::native(on.ref())), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 3) all.push_back(ms * 1e-3);
  }
  (void)cudaEventDestroy(begin);
  (void)cudaEventDestroy(end);
  return median(all);
}

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
  const double takes = on_the_device(
      on, [&] { reduce_into(out.span(), inputs, colls::plus(), on.ref()); });
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

void kernels_and_streams() {
  colls::cuda::stream on(0);
  double copy = 0;
  {
    const colls::cuda::device_buffer<std::byte> from(large);
    const colls::cuda::device_buffer<std::byte> to(large);
    check(cudaMemset(from.data(), 0, large), "cudaMemset");
    copy = 2.0 * large / on_the_device(on, [&] { on.copy(to.data(), from.data(), large); });
    note("device copy, 256 MiB", copy * 1e-9, "GB/s");
  }
  kernel<float, 2>("reduce, 2 x 256 MiB float", on, copy);
  kernel<float, 3>("reduce, 3 x 256 MiB float", on, copy);
  kernel<float, 4>("reduce, 4 x 256 MiB float", on, copy);
  kernel<colls::bfloat16, 2>("reduce, 2 x 256 MiB bfloat16", on, copy);
  kernel<colls::bfloat16, 3>("reduce, 3 x 256 MiB bfloat16", on, copy);
  kernel<colls::bfloat16, 4>("reduce, 4 x 256 MiB bfloat16", on, copy);
  colls::inproc_world alone(1);
  colls::sync_wait(alone, await_latency(on));
}

/// Median seconds of the slower rank.
template <class Communicator, class Call>
colls::task<double> of_calls(Communicator& comm, Call call) {
  std::vector<double> all;
  for (int i = 0; i < repeats + 3; ++i) {
    co_await comm.barrier();
    const double begin = now();
    co_await call();
    std::vector<double> took{now() - begin};
    co_await comm.all_reduce(took, colls::maximum());
    if (i >= 3) all.push_back(took[0]);
  }
  co_return median(all);
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

}  // namespace

int main() {
  try {
    (void)colls::cuda::devices();
  } catch (const colls::error& none) {
    std::printf("%s\n", none.what());
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
  std::printf("%s, driver %d, runtime %d; all ranks share one device\n", what.name, driver, runtime);
  std::printf("%-48s %10s %-5s %s\n", "what", "got", "", "of its floor");
  for (const line& each : table) {
    std::printf("%-48s %10.2f %-5s ", each.what, each.got, each.unit);
    if (each.share != 0) std::printf("%.2f", each.share);
    std::printf("\n");
  }
}
