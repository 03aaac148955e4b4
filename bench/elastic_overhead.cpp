// SPDX-FileCopyrightText: 2026 The colls authors SPDX-License-Identifier: BSL-1.0 Compares elastic
// training in which no rank dies with a loop by hand, which take turns in one program: colls-run -n
// 2 elastic-overhead

#include "../examples/train_mnist/network.hpp"

#include <colls/run.hpp>
#include <colls/torch_elastic.hpp>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace {

struct settings {
  int rounds = 30;
  std::uint64_t steps = 12;  // of each in a round
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
  using clock = std::chrono::steady_clock;
  const auto seconds_since = [](clock::time_point began) {
    return std::chrono::duration<double>(clock::now() - began).count();
  };
  std::vector<double> elastic_times, times, ratios;
  std::optional<clock::time_point> began;  // when elastic training has begun its turn
  // The turn of elastic training ends with its epoch.
  const auto take_turns = [&] {
    const double elastic_time = began ? seconds_since(*began) : 0;
    colls::sync_wait(world, world.barrier());
    const auto by_hand_began = clock::now();
    train_by_hand(model, by_hand, world);
    const double time = seconds_since(by_hand_began);
    if (by_hand.sampler.state().epoch > 2) {  // the first turns of both warm up
      elastic_times.push_back(elastic_time);
      times.push_back(time);
      ratios.push_back(elastic_time / time);
      if (world.rank() == 0) {
        fmt::print("round {}: elastic {:.3f} s, by hand {:.3f} s, ratio {:.3f}\n", times.size(),
                   elastic_time, time, ratios.back());
      }
    }
    colls::sync_wait(world, world.barrier());
    began = clock::now();
  };
  training.run(static_cast<std::uint64_t>(given.rounds) + 2,
               [&](auto& own_model, std::span<const std::size_t> samples) {
                 if (with_elastic.sampler.state().step == 0) take_turns();
                 step()(own_model, samples);
               });
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
