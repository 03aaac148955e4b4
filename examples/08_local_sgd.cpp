// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Local SGD: each rank trains alone, and every K steps all ranks average their weights. That costs
// an all_reduce every K steps instead of one in each step: colls-run -n 4 local_sgd

#include <colls/run.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

using vector = std::vector<double>;

// Trains on samples of this rank only: y = 1 x0 + 2 x1 + ... + 8 x7, with noise.
class learner {
 public:
  explicit learner(int rank) : random_(static_cast<unsigned>(rank)) {}

  void step() {
    vector x(8);
    double error = 0.5 * normal_(random_);
    for (std::size_t k = 0; k < 8; ++k) {
      x[k] = normal_(random_);
      error += (weights[k] - static_cast<double>(k + 1)) * x[k];
    }
    for (std::size_t k = 0; k < 8; ++k) weights[k] -= 0.02 * error * x[k];
  }

  // The distance of the weights from their true values.
  double distance() const {
    double sum = 0;
    for (std::size_t k = 0; k < 8; ++k) sum += std::abs(weights[k] - static_cast<double>(k + 1));
    return sum;
  }

  vector weights = vector(8);

 private:
  std::mt19937 random_;
  std::normal_distribution<double> normal_;
};

colls::task<> train(colls::world& world) {
  constexpr int steps = 2000;
  constexpr int local_steps = 50;
  learner local(world.rank());
  for (int step = 1; step <= steps; ++step) {
    local.step();
    if (step % local_steps != 0) continue;
    double alone[] = {local.distance()};
    co_await world.all_reduce(alone, colls::average{});
    co_await world.all_reduce(local.weights, colls::average{});
    if (world.rank() == 0 && step % 200 == 0) {
      std::printf("step %4d  a rank alone is off by %.3f, the average by %.3f\n", step, alone[0],
                  local.distance());
    }
  }
}

int main() {
  return colls::run([](colls::world& world) { return train(world); });
}
