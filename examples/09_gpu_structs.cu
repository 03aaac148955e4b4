// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// User structs reduced where they lie, in device memory: the largest reading of each sensor and who
// has it, and mean and variance of all readings by Welford's method.
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
  double squares;  // of the distances from the mean, summed
};
struct pooled {
  static constexpr bool commutative = true;
  __host__ __device__ moments operator()(const moments& a, const moments& b) const {
    const double count = a.count + b.count;
    const double apart = b.mean - a.mean;
    if (count == 0) return a;
    return {count, a.mean + apart * b.count / count,
            a.squares + b.squares + apart * apart * a.count * b.count / count};
  }
};

constexpr int sensors = 1000;
constexpr int readings = 256;  // of each sensor by each rank

// Multiples of 1/8: the host calculates the same.
__host__ __device__ float reading(int rank, int sensor, int i) {
  return static_cast<float>((sensor * 31 + i * 17 + rank * 97) % 1009) / 8;
}

/// What a rank has of a sensor.
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

/// Beside what the host makes of the same readings.
bool is_right(int ranks, int sensor, const peak& top, const moments& of) {
  peak highest{};
  moments seen{};
  measure(0, sensor, highest, seen);
  for (int rank = 1; rank < ranks; ++rank) {
    peak theirs{};
    moments more{};
    measure(rank, sensor, theirs, more);
    highest = higher()(highest, theirs);
    seen = pooled()(seen, more);
  }
  const auto near = [](double a, double b) { return std::abs(a - b) <= 1e-9 * (1 + std::abs(b)); };
  return top.value == highest.value && top.rank == highest.rank && of.count == seen.count &&
         near(of.mean, seen.mean) && near(of.squares, seen.squares);
}

template <class T>
std::vector<T> to_host(colls::device_span<T> from) {
  std::vector<T> all(from.size());
  const auto status =
      cudaMemcpy(all.data(), from.data(), all.size() * sizeof(T), cudaMemcpyDeviceToHost);
  colls::cuda::check(status, "cudaMemcpy");
  return all;
}

colls::task<> structs(colls::world& world) {
  const int device = colls::cuda::device_for(world);
  const colls::cuda::on_device here(device);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(world, device);
  // Which may be freed whatever other ranks still have mapped.
  auto peaks = gpu.allocate<peak>(sensors);
  auto all = gpu.allocate<moments>(sensors);
  measure_all<<<(sensors + 127) / 128, 128>>>(world.rank(), peaks.data(), all.data());

  // Both begin after what the default stream has.
  auto highest = gpu.all_reduce(peaks, higher());
  co_await gpu.all_reduce(all, pooled());
  co_await highest;

  const auto top = to_host(peaks.span());
  const auto of = to_host(all.span());
  for (int sensor = 0; sensor < sensors; ++sensor) {
    const auto at = static_cast<std::size_t>(sensor);
    if (!is_right(world.size(), sensor, top[at], of[at])) {
      throw std::runtime_error("sensor " + std::to_string(sensor) + " is not what the host finds");
    }
    if (world.rank() != 0 || sensor >= 3) continue;
    std::printf("sensor %d: %g readings, mean %.4f, variance %.4f, highest %.4f on rank %d\n",
                sensor, of[at].count, of[at].mean, of[at].squares / of[at].count, top[at].value,
                top[at].rank);
  }
  co_await gpu.close();
}

}  // namespace

int main() { return colls::run(structs); }
