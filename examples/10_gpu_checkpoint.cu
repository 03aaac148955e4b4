// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Weights that one rank saved from its device, loaded onto the devices of all ranks, whichever
// those are.
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

void copy(void* to, const void* from) {
  const auto status = cudaMemcpy(to, from, weights * sizeof(float), cudaMemcpyDefault);
  colls::cuda::check(status, "cudaMemcpy");
}

/// Each place holds another value.
std::vector<float> trained() {
  std::vector<float> all(weights);
  for (std::size_t i = 0; i < weights; ++i) all[i] = static_cast<float>(i);
  return all;
}

void save(colls::device_span<float> from) {
  std::vector<float> all(weights);
  copy(all.data(), from.data());
  colls::ddp::atomic_file file(path);  // whole, or not there at all
  file.write(all.data(), all.size() * sizeof(float));
  file.commit();
}

void load(colls::device_span<float> into) {
  std::vector<float> all(weights);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(all.data()),
            static_cast<std::streamsize>(all.size() * sizeof(float)));
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  copy(into.data(), all.data());
}

colls::task<> checkpoint(colls::world& world) {
  // Rank 0 reads for all: no other rank needs the file, and none the device it came from.
  const int device = colls::cuda::device_for(world);
  const colls::cuda::on_device here(device);
  auto gpu = co_await colls::cuda::attach<colls::cuda::cuda_ipc>(world, device);
  auto mine = gpu.allocate<float>(weights);
  if (world.rank() == 0) {
    copy(mine.data(), trained().data());
    save(mine.span());
    copy(mine.data(), std::vector<float>(weights).data());
    load(mine.span());
  }
  co_await gpu.broadcast(mine, 0);

  std::vector<float> got(weights);
  copy(got.data(), mine.data());
  if (got != trained()) throw std::runtime_error("these are not the weights that were saved");
  std::printf("rank %d has %zu weights on device %d, the last one is %g\n", world.rank(), weights,
              device, got.back());
  co_await gpu.close();
}

}  // namespace

int main() { return colls::run(checkpoint); }
