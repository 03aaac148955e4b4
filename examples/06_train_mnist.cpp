// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Trains a network on digits with all ranks: colls-run -n 2 train_mnist --data DIR

#include "train_mnist/dataset.hpp"
#include "train_mnist/network.hpp"
#include "train_mnist/progress.hpp"
#include "train_mnist/trace.hpp"

#include <colls/run.hpp>
#include <colls/torch.hpp>
#include <colls/torch_checkpoint.hpp>

#include <bit>
#include <cstdlib>

namespace {

using colls::sync_wait;

constexpr std::uint64_t steps_between_checkpoints = 100;
constexpr std::size_t test_batch = 256;

// Each rank has found something wrong, or nothing. The lowest that has says it, for all of them.
bool all_is_well(colls::world& world, const std::string& complaint) {
  int first[] = {complaint.empty() ? world.size() : world.rank()};
  sync_wait(world, world.all_reduce(first, colls::minimum{}));
  if (first[0] == world.rank()) fmt::print(stderr, "train_mnist: {}\n", complaint);
  return first[0] == world.size();
}

// In place of data_parallel, for one process without colls.
struct plain_model {
  mnist::network net;
  torch::Tensor operator()(const torch::Tensor& x) { return net->forward(x); }
  void samples(std::int64_t) const {}
  int no_sync() const { return 0; }
  void take_part() const {}
};

struct job {
  colls::world& world;
  mnist::settings want;
  mnist::dataset data;
  mnist::network net;
  std::ofstream log;
  mnist::trace trace;
};

template <class Model>
class trainer {
 public:
  trainer(job& all, Model& model)
      : all_(all),
        model_(model),
        optimizer_(all.net->parameters(), torch::optim::AdamOptions(all.want.lr)),
        sampler_(
            {.samples = all.data.training.size(), .batch = all.want.batch, .seed = all.want.seed}) {
  }

  void train() {
    if (all_.want.resume) {
      resume();
    } else {
      save();  // so that a path which cannot be written is known before the work
    }
    all_.net->train();
    while (sampler_.state().epoch < all_.want.epochs) epoch();
  }

 private:
  void epoch() {
    const std::uint64_t now = sampler_.state().epoch;
    mnist::progress shown(now, all_.want.epochs, sampler_.steps(), sampler_.state().step);
    while (sampler_.state().epoch == now) {
      const std::uint64_t number = now * sampler_.steps() + sampler_.state().step + 1;
      const std::size_t samples = sampler_.batch().size();
      const double loss = step();
      if (all_.world.rank() == 0) {
        shown.step(loss, samples);
        if (all_.log.is_open()) {
          all_.log << fmt::format("{{\"step\":{},\"loss\":{}}}", number, loss) << std::endl;
        }
        all_.trace.write();
      }
      sampler_.advance();
      if (number % steps_between_checkpoints == 0 || sampler_.state().step == 0) save();
    }
  }

  // One step of the optimizer. Gives the mean loss of the whole batch, all ranks' parts of it.
  double step() {
    all_.trace.forward = mnist::trace::now();
    const auto mine = sampler_.batch(all_.world.rank(), all_.world.size());
    torch::manual_seed(dropout_seed());
    optimizer_.zero_grad();
    model_.samples(static_cast<std::int64_t>(mine.size()));
    const double lost = mine.empty() ? no_backward() : backward(mine);
    all_.trace.optimizer = mnist::trace::now();
    optimizer_.step();
    double sums[] = {lost, static_cast<double>(mine.size())};
    sync_wait(all_.world, all_.world.all_reduce(sums));
    all_.trace.end = mnist::trace::now();
    return sums[0] / sums[1];
  }

  double no_backward() {
    model_.take_part();
    return 0;
  }

  // In pieces; gradients travel with the last one. Gives the sum of the losses.
  double backward(std::span<const std::size_t> mine) {
    const auto pieces = static_cast<int>(std::min(all_.want.accumulate, mine.size()));
    const colls::partition parts(mine.size(), pieces);
    double lost = 0;
    const auto one = [&](int piece) {
      const auto which = mine.subspan(parts.offset(piece), parts.count(piece));
      const mnist::batch part = mnist::batch_of(all_.data.all, picked(which));
      const torch::Tensor loss =
          torch::nll_loss(model_(part.pictures), part.labels, {}, torch::Reduction::Sum);
      all_.trace.backward = mnist::trace::now();
      (loss / static_cast<double>(mine.size())).backward();
      lost += loss.template item<double>();
    };
    {
      [[maybe_unused]] const auto quiet = model_.no_sync();
      for (int piece = 0; piece < pieces - 1; ++piece) one(piece);
    }
    one(pieces - 1);
    return lost;
  }

  // The sampler counts the training samples; these are their places in the data.
  std::span<const std::size_t> picked(std::span<const std::size_t> which) {
    picked_.clear();
    for (const std::size_t i : which) picked_.push_back(all_.data.training[i]);
    return picked_;
  }

  // Each rank and step has its own, so that a resumed run draws what it would have drawn.
  std::uint64_t dropout_seed() const {
    const colls::ddp::sampler_state& at = sampler_.state();
    const auto rank = static_cast<std::uint64_t>(all_.world.rank());
    return colls::mix(colls::mix(colls::mix(at.seed, rank), at.epoch), at.step);
  }

  void save() {
    if (all_.want.checkpoint.empty()) return;
    colls::ddp::save_checkpoint(all_.world, all_.want.checkpoint, *all_.net, optimizer_,
                                sampler_.state());
  }

  void resume() {
    const std::string& path = all_.want.checkpoint;
    const auto at = colls::ddp::load_checkpoint(all_.world, path, *all_.net, optimizer_);
    const auto& here = sampler_.state();
    if (at.samples != here.samples || at.batch != here.batch || at.seed != here.seed) {
      const std::string why = fmt::format(
          "{} is of a training with {} samples, --batch {} and --seed {}; here are {}, {} and {}",
          path, at.samples, at.batch, at.seed, here.samples, here.batch, here.seed);
      throw colls::error(colls::errc::file_failed, why.c_str());
    }
    sampler_ = colls::ddp::batch_sampler(at);
    if (all_.world.rank() == 0) {
      fmt::print("resumed from {}: epoch {}, step {}\n", path, at.epoch + 1, at.step);
    }
  }

  job& all_;
  Model& model_;
  torch::optim::Adam optimizer_;
  colls::ddp::batch_sampler sampler_;
  std::vector<std::size_t> picked_;
};

// How many of the test samples the network names rightly; each rank asks it about its part.
std::int64_t right_answers(job& all) {
  const torch::NoGradGuard no_grad;
  all.net->eval();
  const colls::partition parts(all.data.test.size(), all.world.size());
  auto mine = std::span<const std::size_t>(all.data.test)
                  .subspan(parts.offset(all.world.rank()), parts.count(all.world.rank()));
  std::int64_t right[] = {0};
  while (!mine.empty()) {
    const mnist::batch part =
        mnist::batch_of(all.data.all, mine.first(std::min(mine.size(), test_batch)));
    const torch::Tensor answers = all.net->forward(part.pictures).argmax(1);
    right[0] += answers.eq(part.labels).sum().item<std::int64_t>();
    mine = mine.subspan(static_cast<std::size_t>(part.labels.size(0)));
  }
  sync_wait(all.world, all.world.all_reduce(right));
  return right[0];
}

// Whether every rank has the same bits in every parameter.
void check_parameters(job& all) {
  std::uint64_t hash = 0;
  for (const torch::Tensor& parameter : all.net->parameters()) {
    const float* const values = parameter.data_ptr<float>();
    for (std::int64_t i = 0; i < parameter.numel(); ++i) {
      hash = colls::mix(hash, std::bit_cast<std::uint32_t>(values[i]));
    }
  }
  std::uint64_t most_and_least[] = {hash, ~hash};
  sync_wait(all.world, all.world.all_reduce(most_and_least, colls::maximum{}));
  if (most_and_least[0] != ~most_and_least[1]) {
    throw std::runtime_error("the ranks' parameters differ");
  }
  if (all.world.rank() == 0) {
    fmt::print("parameters: the same bits on all ranks, hash {:016x}\n", hash);
  }
}

void introduce(job& all) {
  const char* const transport = std::getenv("COLLS_TRANSPORT");
  fmt::print("backend: {}\nprocesses: {}\n\n{}\n",
             transport == nullptr || *transport == 0 ? "hybrid" : transport, all.world.size(),
             mnist::table_of(*all.net));
  fmt::print("digits: {}; {} to train on, {} to test with\n", all.data.origin,
             all.data.training.size(), all.data.test.size());
  std::fflush(stdout);
}

void train(job& all) {
  if (all.want.plain) {
    plain_model model{all.net};
    trainer(all, model).train();
    return;
  }
  colls::ddp::options how;
  how.drive = all.want.hooks ? colls::ddp::drive::hooks : colls::ddp::drive::thread;
  if (!all.want.trace.empty()) how.trace = &all.trace.gradients;
  auto model = colls::ddp::data_parallel(all.net, all.world, how);
  trainer(all, model).train();
}

// Throws one line about what cannot be.
void prepare(job& all) {
  all.data = mnist::load(all.want);
  for (const auto& one : all.net->named_parameters()) all.trace.parameters.push_back(one.key());
  if (all.world.rank() != 0) return;
  const auto open = [](std::ofstream& file, const std::string& path, std::ios::openmode mode) {
    if (!path.empty()) file.open(path, mode);
    if (!path.empty() && !file) throw std::runtime_error(path + ": cannot be written");
  };
  open(all.log, all.want.log, all.want.resume ? std::ios::app : std::ios::trunc);
  open(all.trace.out, all.want.trace, std::ios::trunc);
}

int run(colls::world& world, int argc, char** argv) {
  std::string complaint;
  mnist::settings want;
  try {
    want = mnist::parse(argc, argv, world.size());
  } catch (const std::exception& wrong) {
    complaint = wrong.what();
  }
  if (!want.help.empty()) {
    if (world.rank() == 0) fmt::print("{}", want.help);
    return 0;
  }
  fmt::print("GLOBAL_RANK: {}, MEMBER: {}/{}\n", world.rank(), world.rank() + 1, world.size());
  std::fflush(stdout);
  if (!all_is_well(world, complaint)) return 1;

  if (world.local_size() > 1) torch::set_num_threads(1);
  torch::manual_seed(want.seed);
  mnist::network net(want.dropout.value_or(0.25), want.dropout.value_or(0.5));
  job all{world, std::move(want), {}, net, {}, {}};
  try {
    prepare(all);
  } catch (const std::exception& wrong) {
    complaint = wrong.what();
  }
  if (!all_is_well(world, complaint)) return 1;
  if (world.rank() == 0) introduce(all);

  try {
    train(all);
  } catch (const colls::error& wrong) {
    if (wrong.code() != colls::errc::file_failed) throw;
    all_is_well(world, wrong.what());  // every rank has the same one
    return 1;
  }
  check_parameters(all);
  const std::int64_t right = right_answers(all);
  if (world.rank() == 0) {
    const auto count = all.data.test.size();
    fmt::print("accuracy {:.2f} % ({} of {})\n",
               100.0 * static_cast<double>(right) / static_cast<double>(count), right, count);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return colls::run([&](colls::world& world) { return run(world, argc, argv); });
}
