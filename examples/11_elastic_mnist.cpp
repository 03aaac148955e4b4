// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Trains a network on pictures of digits, and goes on when ranks die, with replacements of them:
// colls-run -n 4 --on-failure replace elastic_mnist --data DIR
// or with those that are left: colls-run -n 4 --on-failure shrink elastic_mnist --data DIR

#include "train_mnist/dataset.hpp"
#include "train_mnist/evaluation.hpp"
#include "train_mnist/network.hpp"
#include "train_mnist/progress.hpp"

#include <colls/run.hpp>
#include <colls/torch_elastic.hpp>

#include <chrono>
#include <fstream>

namespace {

struct settings {
  mnist::settings data;
  std::string checkpoint, log;
};

settings parse(int argc, char** argv) {
  settings result;
  CLI::App app{"Trains on pictures of digits, and goes on when ranks die."};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.add_option("--data", result.data.data, "folder with MNIST's files");
  app.add_option("--holdout", result.data.holdout, "test with this number of samples");
  app.add_option("--limit", result.data.limit, "train on at most this number of samples");
  app.add_option("--epochs", result.data.epochs, "number of passes over the training samples");
  app.add_option("--batch", result.data.batch, "samples of a step on all ranks together");
  app.add_option("--seed", result.data.seed, "seed of weights, order and dropout");
  app.add_option("--dropout", result.data.dropout, "probability (default: 0.25, then 0.5)")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--checkpoint", result.checkpoint, "file for the state after each epoch");
  app.add_option("--log", result.log, "each rank writes its samples to the file LOG.RANK");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& ended) {
    std::exit(app.exit(ended));
  }
  return result;
}

/// Writes a line for each step that this rank takes, and one for each that it has applied. The time
/// is that of a clock that the processes of a host share.
class step_log {
 public:
  explicit step_log(const std::string& path) {
    if (path.empty()) return;
    file_.open(path, std::ios::app);
    if (!file_) throw std::runtime_error(path + ": cannot be written");
  }

  /// This rank is about to take the step `number` with all ranks of `world`.
  void take(std::uint64_t number, const colls::world& world, std::span<const std::size_t> samples) {
    apply(number);
    taken_ = fmt::format("\"step\":{},\"ranks\":{},\"generation\":{}", number, world.size(),
                         world.generation());
    number_ = number;
    if (file_.is_open()) {
      file_ << fmt::format("{{\"event\":\"take\",\"time\":{:.4f},{},\"samples\":[{}]}}", now(),
                           taken_, fmt::join(samples, ","))
            << std::endl;
    }
  }
  /// The next step is `next`, so this rank has applied the last one that it took if that was
  /// another.
  void apply(std::uint64_t next) {
    if (taken_.empty() || next == number_) return;
    if (file_.is_open()) {
      file_ << fmt::format("{{\"event\":\"apply\",\"time\":{:.4f},{}}}", now(), taken_)
            << std::endl;
    }
    taken_.clear();
  }

 private:
  static double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  std::ofstream file_;
  std::string taken_;
  std::uint64_t number_ = 0;
};

int run(colls::world& world, const settings& all) {
  const mnist::dataset data = mnist::load(all.data);
  torch::set_num_threads(1);
  torch::manual_seed(all.data.seed);
  mnist::network net(all.data.dropout.value_or(0.25), all.data.dropout.value_or(0.5));
  torch::optim::Adam optimizer(net->parameters(), torch::optim::AdamOptions(all.data.lr));
  colls::ddp::batch_sampler sampler(
      {.samples = data.training.size(), .batch = all.data.batch, .seed = all.data.seed});

  step_log log(all.log.empty() ? "" : all.log + "." + std::to_string(world.rank()));
  const auto number = [&] {
    return sampler.state().epoch * sampler.steps() + sampler.state().step;
  };
  std::optional<mnist::progress> shown;
  std::uint64_t next = UINT64_MAX;  // the step that `shown` expects
  int ranks = world.size();
  std::uint32_t generation = world.generation();
  const auto step = [&](auto& model, std::span<const std::size_t> samples) {
    if (world.generation() != generation && world.rank() == 0) {
      fmt::print("{} ranks, with replacements\n", world.size());
    } else if (world.size() != ranks && world.rank() == 0) {
      fmt::print("{} of {} ranks are left\n", world.size(), ranks);
    }
    ranks = world.size();
    generation = world.generation();
    log.take(number(), world, samples);
    std::vector<std::size_t> chosen;
    for (const std::size_t i : samples) chosen.push_back(data.training[i]);
    const mnist::batch part = mnist::batch_of(data.all, chosen);
    const colls::ddp::sampler_state& at = sampler.state();
    if (next != number() || at.step == 0) {
      shown.emplace(at.epoch, all.data.epochs, sampler.steps(), at.step);
    }
    const torch::Tensor loss = torch::nll_loss(model(part.pictures), part.labels);
    loss.backward();
    if (world.rank() == 0) shown->step(loss.item<double>(), sampler.batch().size());
    next = number() + 1;
  };

  net->train();
  colls::ddp::elastic training(world, net, optimizer, sampler, {.checkpoint = all.checkpoint});
  training.run(all.data.epochs, step);
  log.apply(number());

  const std::uint64_t hash = mnist::common_hash(world, *net);
  const std::int64_t correct = mnist::count_correct(world, data, net);
  if (world.rank() == 0) {
    fmt::print("parameters: the same bits on {} ranks, hash {:016x}\naccuracy {:.2f} %\n",
               world.size(), hash,
               100.0 * static_cast<double>(correct) / static_cast<double>(data.test.size()));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const settings all = parse(argc, argv);
  return colls::run([&](colls::world& world) { return run(world, all); });
}
