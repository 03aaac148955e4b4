// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Data-parallel training is one all_reduce a step: colls-run -n 4 data_parallel_by_hand

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

// Sample i, the same on whichever rank it is drawn: y = 1 x0 + 2 x1 + ... + 8 x7 and some noise.
sample draw(unsigned i) {
  std::mt19937 random(i);
  std::normal_distribution<double> normal;
  sample drawn{vector(8), 0.1 * normal(random)};
  for (std::size_t k = 0; k < 8; ++k) {
    drawn.x[k] = normal(random);
    drawn.y += static_cast<double>(k + 1) * drawn.x[k];
  }
  return drawn;
}

colls::task<> train(colls::world& world) {
  const auto rank = static_cast<unsigned>(world.rank());
  const auto size = static_cast<unsigned>(world.size());
  constexpr unsigned batch = 64;
  vector weights(8);  // equal on all ranks, now and after every step
  for (unsigned step = 0; step < 200; ++step) {
    // The sums over this rank's samples of the batch: the gradient, and the loss behind it.
    vector sums(9);
    for (unsigned i = rank; i < batch; i += size) {
      const sample s = draw(step * batch + i);
      const double error = std::inner_product(s.x.begin(), s.x.end(), weights.begin(), -s.y);
      for (std::size_t k = 0; k < 8; ++k) sums[k] += 2 * error * s.x[k];
      sums[8] += error * error;
    }
    co_await world.all_reduce(sums);  // now over the whole batch, the same bits on every rank
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
