// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Compares elastic training in which no rank dies with a loop by hand, which take turns in one program:
// colls-run -n 2 elastic-overhead

#include "../examples/train_mnist/network.hpp"

#include <colls/run.hpp>
#include <colls/torch_elastic.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

namespace {

struct settings {
  int rounds = 10;
  std::uint64_t steps = 20;  // of each in a round
  std::uint64_t batch = 32;
};

/// A network and what trains it.
struct trainee {
  explicit trainee(const settings& given)
      : sampler({.samples = given.steps * given.batch, .batch = given.batch, .seed = 1}) {
    net->train();
  }
  mnist::network net{0.25, 0.5};
  torch::optim::Adam optimizer{net->parameters(), torch::optim::AdamOptions(1e-3)};
  colls::ddp::batch_sampler sampler;
};

/// Does the forward and backward passes of random pictures.
struct step {
  template <class Model>
  void operator()(Model& model, std::span<const std::size_t> samples) const {
    const auto count = static_cast<std::int64_t>(samples.size());
    const torch::Tensor pictures = torch::rand({count, 1, mnist::side, mnist::side});
    const torch::Tensor labels = torch::randint(10, {count}, torch::kInt64);
    torch::nll_loss(model(pictures), labels).backward();
  }
};

template <class Model>
void train_by_hand(Model& model, trainee& own, colls::world& world) {
  const std::uint64_t epoch = own.sampler.state().epoch;
  while (own.sampler.state().epoch == epoch) {
    const auto samples = own.sampler.batch(world.rank(), world.size());
    own.optimizer.zero_grad();
    step()(model, samples);
    own.optimizer.step();
    own.sampler.advance();
  }
}

template <class Work>
double seconds_of(colls::world& world, const Work& work) {
  colls::sync_wait(world, world.barrier());
  const auto began = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

int run(colls::world& world, const settings& given) {
  torch::set_num_threads(1);
  torch::manual_seed(1);
  trainee with_elastic(given), by_hand(given);
  colls::ddp::elastic training(world, with_elastic.net, with_elastic.optimizer,
                               with_elastic.sampler);
  auto model = colls::ddp::data_parallel(by_hand.net, world);
  std::vector<double> elastic_times, times, ratios;
  for (int round = 0; round <= given.rounds; ++round) {
    const double elastic_time =
        seconds_of(world, [&] { training.run(static_cast<std::uint64_t>(round) + 1, step()); });
    const double time = seconds_of(world, [&] { train_by_hand(model, by_hand, world); });
    if (round == 0) continue;  // which warms up
    elastic_times.push_back(elastic_time);
    times.push_back(time);
    ratios.push_back(elastic_time / time);
    if (world.rank() == 0) {
      fmt::print("round {}: elastic {:.3f} s, by hand {:.3f} s, ratio {:.3f}\n", round,
                 elastic_time, time, ratios.back());
    }
  }
  if (world.rank() == 0) {
    fmt::print(
        "medians: elastic {:.3f} s, by hand {:.3f} s, ratio {:.3f}; median of the ratios {:.3f}\n",
        median(elastic_times), median(times), median(elastic_times) / median(times),
        median(ratios));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  settings given;
  CLI::App app{"Compares elastic training in which no rank dies with a loop by hand."};
  app.add_option("--rounds", given.rounds, "how often each takes its turn")
      ->check(CLI::Range(1, 1000));
  app.add_option("--steps", given.steps, "steps in a turn")->check(CLI::PositiveNumber);
  app.add_option("--batch", given.batch, "samples in a step")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  return colls::run([&](colls::world& world) { return run(world, given); });
}
