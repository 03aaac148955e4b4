// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Data-parallel training with one all_reduce in each step: colls-run -n 4 data_parallel_by_hand

#include <colls/run.hpp>

#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

using vector = std::vector<double>;

struct sample {
  vector x;
  double y;
};

// Generates sample i, which is the same on every rank: y = 1 x0 + 2 x1 + ... + 8 x7 and some noise.
sample generate(unsigned i) {
  std::mt19937 random(i);
  std::normal_distribution<double> normal;
  sample result{vector(8), 0.1 * normal(random)};
  for (std::size_t k = 0; k < 8; ++k) {
    result.x[k] = normal(random);
    result.y += static_cast<double>(k + 1) * result.x[k];
  }
  return result;
}

colls::task<> train(colls::world& world) {
  const auto rank = static_cast<unsigned>(world.rank());
  const auto size = static_cast<unsigned>(world.size());
  constexpr unsigned batch = 64;
  vector weights(8);  // equal on all ranks before and after every step
  for (unsigned step = 0; step < 200; ++step) {
    // Sums over this rank's samples of the batch: the gradient in 0 to 7, the loss in 8.
    vector sums(9);
    for (unsigned i = rank; i < batch; i += size) {
      const sample s = generate(step * batch + i);
      const double error = std::inner_product(s.x.begin(), s.x.end(), weights.begin(), -s.y);
      for (std::size_t k = 0; k < 8; ++k) sums[k] += 2 * error * s.x[k];
      sums[8] += error * error;
    }
    co_await world.all_reduce(sums);  // sums over the whole batch, bitwise equal on all ranks
    for (std::size_t k = 0; k < 8; ++k) weights[k] -= 0.1 * sums[k] / batch;
    if (rank == 0 && step % 20 == 19) std::printf("step %3u  loss %.6f\n", step, sums[8] / batch);
  }
  if (rank != 0) co_return;
  for (const double weight : weights) std::printf("%.2f ", weight);
  std::printf("are the weights\n");
}

int main() {
  return colls::run([](colls::world& world) { return train(world); });
}
