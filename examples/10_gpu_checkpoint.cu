// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Loads weights that one rank has saved from its device onto the devices of all ranks, which may be
// different ones.
//   nvcc -std=c++20 --extended-lambda -Iinclude THIS_FILE -lcrypto; colls-run -n 2 ./a.out

#include <colls/cuda/ipc.hpp>
#include <colls/cuda/reduce.cuh>
#include <colls/ddp/checkpoint.hpp>
#include <colls/run.hpp>

#include <cstdio>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t weights = 1 << 20;
const char* const path = "weights.bin";

void copy(void* dest, const void* source) {
  const auto status = cudaMemcpy(dest, source, weights * sizeof(float), cudaMemcpyDefault);
  colls::cuda::check(status, "cudaMemcpy");
}

/// Weights of which each has another value.
std::vector<float> trained() {
  std::vector<float> all(weights);
  for (std::size_t i = 0; i < weights; ++i) all[i] = static_cast<float>(i);
  return all;
}

void save(colls::device_span<float> data) {
  std::vector<float> all(weights);
  copy(all.data(), data.data());
  colls::ddp::atomic_file file(path);  // appears under its name only when it is complete
  file.write(all.data(), all.size() * sizeof(float));
  file.commit();
}

void load(colls::device_span<float> data) {
  std::vector<float> all(weights);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(all.data()),
            static_cast<std::streamsize>(all.size() * sizeof(float)));
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  copy(data.data(), all.data());
}

colls::task<> checkpoint(colls::world& world) {
  // Only rank 0 reads the file. No rank needs the device from which the weights were saved.
  const int device = colls::cuda::device_for(world);
  const colls::cuda::on_device current(device);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(world, device);
  auto buffer = gpu.allocate<float>(weights);
  if (world.rank() == 0) {
    copy(buffer.data(), trained().data());
    save(buffer.span());
    copy(buffer.data(), std::vector<float>(weights).data());
    load(buffer.span());
  }
  co_await gpu.broadcast(buffer, 0);

  std::vector<float> loaded(weights);
  copy(loaded.data(), buffer.data());
  if (loaded != trained())
    throw std::runtime_error("the weights differ from those that were saved");
  std::printf("rank %d has %zu weights on device %d, the last one is %g\n", world.rank(), weights,
              device, loaded.back());
  co_await gpu.close();
}

}  // namespace

int main() { return colls::run(checkpoint); }
