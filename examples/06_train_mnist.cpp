// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Trains a network on pictures of digits, on all ranks: colls-run -n 2 train_mnist --data DIR

#include "train_mnist/dataset.hpp"
#include "train_mnist/evaluation.hpp"
#include "train_mnist/network.hpp"
#include "train_mnist/progress.hpp"
#include "train_mnist/trace.hpp"

#include <colls/run.hpp>
#include <colls/torch.hpp>
#include <colls/torch_checkpoint.hpp>

#include <cstdlib>

namespace {

using colls::sync_wait;

constexpr std::uint64_t steps_between_checkpoints = 100;

// Returns whether no rank has an error. If some have, the lowest of them prints its message.
bool all_succeeded(colls::world& world, const std::string& error) {
  int first[] = {error.empty() ? world.size() : world.rank()};
  sync_wait(world, world.all_reduce(first, colls::minimum{}));
  if (first[0] == world.rank()) fmt::print(stderr, "train_mnist: {}\n", error);
  return first[0] == world.size();
}

// Replaces data_parallel in one process that trains without colls.
struct plain_model {
  mnist::network net;
  torch::Tensor operator()(const torch::Tensor& x) { return net->forward(x); }
  void samples(std::int64_t) const {}
  int no_sync() const { return 0; }
  void take_part() const {}
};

struct job {
  colls::world& world;
  mnist::settings settings;
  mnist::dataset data;
  mnist::network net;
  std::ofstream log;
  mnist::trace trace;
};

template <class Model>
class trainer {
 public:
  trainer(job& work, Model& model)
      : job_(work),
        model_(model),
        optimizer_(work.net->parameters(), torch::optim::AdamOptions(work.settings.lr)),
        sampler_({.samples = work.data.training.size(),
                  .batch = work.settings.batch,
                  .seed = work.settings.seed}) {}

  void train() {
    if (job_.settings.resume) {
      resume();
    } else {
      save();  // finds a path that cannot be written before the training begins
    }
    job_.net->train();
    while (sampler_.state().epoch < job_.settings.epochs) epoch();
  }

 private:
  void epoch() {
    const std::uint64_t now = sampler_.state().epoch;
    mnist::progress shown(now, job_.settings.epochs, sampler_.steps(), sampler_.state().step);
    while (sampler_.state().epoch == now) {
      const std::uint64_t number = now * sampler_.steps() + sampler_.state().step + 1;
      const std::size_t samples = sampler_.batch().size();
      const double loss = step();
      if (job_.world.rank() == 0) {
        shown.step(loss, samples);
        if (job_.log.is_open()) {
          job_.log << fmt::format("{{\"step\":{},\"loss\":{}}}", number, loss) << std::endl;
        }
        job_.trace.write();
      }
      sampler_.advance();
      if (number % steps_between_checkpoints == 0 || sampler_.state().step == 0) save();
    }
  }

  // Makes one step of the optimizer. Returns the mean loss of the whole batch over all ranks.
  double step() {
    job_.trace.forward = mnist::trace::now();
    const auto samples = sampler_.batch(job_.world.rank(), job_.world.size());
    torch::manual_seed(dropout_seed());
    optimizer_.zero_grad();
    model_.samples(static_cast<std::int64_t>(samples.size()));
    const double loss = samples.empty() ? no_backward() : backward(samples);
    job_.trace.optimizer = mnist::trace::now();
    optimizer_.step();
    double sums[] = {loss, static_cast<double>(samples.size())};
    sync_wait(job_.world, job_.world.all_reduce(sums));
    job_.trace.end = mnist::trace::now();
    return sums[0] / sums[1];
  }

  double no_backward() {
    model_.take_part();
    return 0;
  }

  // Computes this rank's part of the batch in pieces. The gradients are averaged with those of the
  // other ranks in the last piece. Returns the sum of the losses.
  double backward(std::span<const std::size_t> samples) {
    const auto pieces = static_cast<int>(std::min(job_.settings.accumulate, samples.size()));
    const colls::partition parts(samples.size(), pieces);
    double sum = 0;
    const auto compute = [&](int piece) {
      const auto chosen = samples.subspan(parts.offset(piece), parts.count(piece));
      const mnist::batch part = mnist::batch_of(job_.data.all, data_indices(chosen));
      const torch::Tensor loss =
          torch::nll_loss(model_(part.pictures), part.labels, {}, torch::Reduction::Sum);
      job_.trace.backward = mnist::trace::now();
      (loss / static_cast<double>(samples.size())).backward();
      sum += loss.template item<double>();
    };
    {
      [[maybe_unused]] const auto no_sync = model_.no_sync();
      for (int piece = 0; piece < pieces - 1; ++piece) compute(piece);
    }
    compute(pieces - 1);
    return sum;
  }

  // The sampler numbers the training samples. Returns their indices in the data.
  std::span<const std::size_t> data_indices(std::span<const std::size_t> samples) {
    indices_.clear();
    for (const std::size_t i : samples) indices_.push_back(job_.data.training[i]);
    return indices_;
  }

  // Each rank and step has its own seed, so a resumed run equals an uninterrupted one.
  std::uint64_t dropout_seed() const {
    const colls::ddp::sampler_state& state = sampler_.state();
    const auto rank = static_cast<std::uint64_t>(job_.world.rank());
    return colls::mix(colls::mix(colls::mix(state.seed, rank), state.epoch), state.step);
  }

  void save() {
    if (job_.settings.checkpoint.empty()) return;
    colls::ddp::save_checkpoint(job_.world, job_.settings.checkpoint, *job_.net, optimizer_,
                                sampler_.state());
  }

  void resume() {
    const std::string& path = job_.settings.checkpoint;
    const auto saved = colls::ddp::load_checkpoint(job_.world, path, *job_.net, optimizer_);
    const auto& own = sampler_.state();
    if (saved.samples != own.samples || saved.batch != own.batch || saved.seed != own.seed) {
      const std::string reason = fmt::format(
          "{} is of a training with {} samples, --batch {} and --seed {}; here are {}, {} and {}",
          path, saved.samples, saved.batch, saved.seed, own.samples, own.batch, own.seed);
      throw colls::error(colls::errc::file_failed, reason.c_str());
    }
    sampler_ = colls::ddp::batch_sampler(saved);
    if (job_.world.rank() == 0) {
      fmt::print("resumed from {}: epoch {}, step {}\n", path, saved.epoch + 1, saved.step);
    }
  }

  job& job_;
  Model& model_;
  torch::optim::Adam optimizer_;
  colls::ddp::batch_sampler sampler_;
  std::vector<std::size_t> indices_;
};

void print_job(job& all) {
  const char* const transport = std::getenv("COLLS_TRANSPORT");
  fmt::print("backend: {}\nprocesses: {}\n\n{}\n",
             transport == nullptr || *transport == 0 ? "hybrid" : transport, all.world.size(),
             mnist::table_of(*all.net));
  fmt::print("digits: {}; {} to train on, {} to test with\n", all.data.origin,
             all.data.training.size(), all.data.test.size());
  std::fflush(stdout);
}

void train(job& all) {
  if (all.settings.plain) {
    plain_model model{all.net};
    trainer(all, model).train();
    return;
  }
  colls::ddp::options opts;
  opts.drive = all.settings.hooks ? colls::ddp::drive::hooks : colls::ddp::drive::thread;
  if (!all.settings.trace.empty()) opts.trace = &all.trace.gradients;
  auto model = colls::ddp::data_parallel(all.net, all.world, opts);
  trainer(all, model).train();
}

// Loads the data and opens the output files. Throws an error with a message of one line.
void prepare(job& all) {
  all.data = mnist::load(all.settings);
  for (const auto& named : all.net->named_parameters()) {
    all.trace.parameters.push_back(named.key());
  }
  if (all.world.rank() != 0) return;
  const auto open = [](std::ofstream& file, const std::string& path, std::ios::openmode mode) {
    if (!path.empty()) file.open(path, mode);
    if (!path.empty() && !file) throw std::runtime_error(path + ": cannot be written");
  };
  open(all.log, all.settings.log, all.settings.resume ? std::ios::app : std::ios::trunc);
  open(all.trace.out, all.settings.trace, std::ios::trunc);
}

int run(colls::world& world, int argc, char** argv) {
  std::string error;
  mnist::settings settings;
  try {
    settings = mnist::parse(argc, argv, world.size());
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  if (!settings.help.empty()) {
    if (world.rank() == 0) fmt::print("{}", settings.help);
    return 0;
  }
  fmt::print("GLOBAL_RANK: {}, MEMBER: {}/{}\n", world.rank(), world.rank() + 1, world.size());
  std::fflush(stdout);
  if (!all_succeeded(world, error)) return 1;

  if (world.local_size() > 1) torch::set_num_threads(1);
  torch::manual_seed(settings.seed);
  mnist::network net(settings.dropout.value_or(0.25), settings.dropout.value_or(0.5));
  job all{world, std::move(settings), {}, net, {}, {}};
  try {
    prepare(all);
  } catch (const std::exception& thrown) {
    error = thrown.what();
  }
  if (!all_succeeded(world, error)) return 1;
  if (world.rank() == 0) print_job(all);

  try {
    train(all);
  } catch (const colls::error& thrown) {
    if (thrown.code() != colls::errc::file_failed) throw;
    all_succeeded(world, thrown.what());  // every rank has the same error
    return 1;
  }
  const std::uint64_t hash = mnist::common_hash(world, *net);
  const std::int64_t correct = mnist::count_correct(world, all.data, net);
  if (world.rank() == 0) {
    fmt::print("parameters: the same bits on all ranks, hash {:016x}\n", hash);
    const auto count = all.data.test.size();
    fmt::print("accuracy {:.2f} % ({} of {})\n",
               100.0 * static_cast<double>(correct) / static_cast<double>(count), correct, count);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return colls::run([&](colls::world& world) { return run(world, argc, argv); });
}
