// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Reduces user-defined structs in device memory: the largest reading of each sensor with its rank,
// and the mean and variance of all readings by Welford's method.
//   nvcc -std=c++20 --extended-lambda -Iinclude THIS_FILE -lcrypto; colls-run -n 2 ./a.out

#include <colls/cuda/ipc.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/run.hpp>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct peak {
  float value;
  int rank;
};
struct higher {
  static constexpr bool commutative = true;
  __host__ __device__ peak operator()(const peak& a, const peak& b) const {
    return a.value > b.value || (a.value == b.value && a.rank < b.rank) ? a : b;
  }
};

struct moments {
  double count;
  double mean;
  double squares;  // sum of the squared distances from the mean
};
struct pooled {
  static constexpr bool commutative = true;
  __host__ __device__ moments operator()(const moments& a, const moments& b) const {
    const double count = a.count + b.count;
    const double distance = b.mean - a.mean;
    if (count == 0) return a;
    return {count, a.mean + distance * b.count / count,
            a.squares + b.squares + distance * distance * a.count * b.count / count};
  }
};

constexpr int sensors = 1000;
constexpr int readings = 256;  // of each sensor by each rank

// A multiple of 1/8, which is exact on the host and on the device.
__host__ __device__ float reading(int rank, int sensor, int i) {
  return static_cast<float>((sensor * 31 + i * 17 + rank * 97) % 1009) / 8;
}

/// The peak and the moments of a rank's readings of a sensor.
__host__ __device__ void measure(int rank, int sensor, peak& highest, moments& seen) {
  highest = {reading(rank, sensor, 0), rank};
  seen = {};
  for (int i = 0; i < readings; ++i) {
    const float value = reading(rank, sensor, i);
    highest = higher()(highest, {value, rank});
    seen = pooled()(seen, {1, value, 0});
  }
}
__global__ void measure_all(int rank, peak* peaks, moments* all) {
  const int sensor = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (sensor < sensors) measure(rank, sensor, peaks[sensor], all[sensor]);
}

/// Returns whether the results equal those that the host computes from the same readings.
bool is_correct(int ranks, int sensor, const peak& top, const moments& pool) {
  peak highest{};
  moments seen{};
  measure(0, sensor, highest, seen);
  for (int rank = 1; rank < ranks; ++rank) {
    peak rank_highest{};
    moments rank_seen{};
    measure(rank, sensor, rank_highest, rank_seen);
    highest = higher()(highest, rank_highest);
    seen = pooled()(seen, rank_seen);
  }
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); };
  return top.value == highest.value && top.rank == highest.rank && pool.count == seen.count &&
         near(pool.mean, seen.mean) && near(pool.squares, seen.squares);
}

template <class T>
std::vector<T> to_host(colls::device_span<T> data) {
  std::vector<T> all(data.size());
  const auto status =
      cudaMemcpy(all.data(), data.data(), all.size() * sizeof(T), cudaMemcpyDeviceToHost);
  colls::cuda::check(status, "cudaMemcpy");
  return all;
}

colls::task<> structs(colls::world& world) {
  const int device = colls::cuda::device_for(world);
  const colls::cuda::on_device current(device);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(world, device);
  // This memory may be freed even while other ranks have it mapped.
  auto peaks = gpu.allocate<peak>(sensors);
  auto all = gpu.allocate<moments>(sensors);
  measure_all<<<(sensors + 127) / 128, 128>>>(world.rank(), peaks.data(), all.data());

  // Both calls begin after the work in the default stream.
  auto highest = gpu.all_reduce(peaks, higher());
  co_await gpu.all_reduce(all, pooled());
  co_await highest;

  const auto top = to_host(peaks.span());
  const auto pool = to_host(all.span());
  for (int sensor = 0; sensor < sensors; ++sensor) {
    const auto i = static_cast<std::size_t>(sensor);
    if (!is_correct(world.size(), sensor, top[i], pool[i])) {
      throw std::runtime_error("sensor " + std::to_string(sensor) +
                               ": the result differs from the host's");
    }
    if (world.rank() != 0 || sensor >= 3) continue;
    std::printf("sensor %d: %g readings, mean %.4f, variance %.4f, highest %.4f on rank %d\n",
                sensor, pool[i].count, pool[i].mean, pool[i].squares / pool[i].count, top[i].value,
                top[i].rank);
  }
  co_await gpu.close();
}

}  // namespace

int main() { return colls::run(structs); }
