// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/run.hpp>
#include <colls/torch_elastic.hpp>

#include "../support/tcp_threads.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>

namespace {

namespace files = std::filesystem;
using colls::errc;

constexpr std::uint64_t all_samples = 52, batch = 8, epochs = 3;
constexpr std::uint64_t steps = 7;  // of an epoch; the last one has four samples

/// A network with a buffer that counts its forward passes, and on which they depend.
struct counting_net_impl : torch::nn::Module {
  torch::nn::Linear fc1{4, 16}, fc2{16, 3};
  torch::Tensor passes = register_buffer("passes", torch::zeros(1));

  counting_net_impl() {
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    {
      const torch::NoGradGuard no_graph;
      passes += 1;
    }
    return torch::log_softmax(fc2(torch::relu(fc1(x)) * (1 + passes / 100)), 1);
  }
};
using counting_net = torch::nn::ModuleHolder<counting_net_impl>;

struct inputs {
  torch::Tensor values, labels;
  inputs() {
    const torch::Tensor index = torch::arange(static_cast<double>(all_samples * 4), torch::kDouble);
    values = torch::sin(index * 1.7)
                 .reshape({static_cast<std::int64_t>(all_samples), 4})
                 .to(torch::kFloat);
    labels = values.slice(1, 0, 3).argmax(1);
  }
};

/// The parameters, as bytes.
std::string bits_of(const torch::nn::Module& module) {
  std::string all;
  const auto add = [&](const torch::Tensor& tensor) {
    all.append(static_cast<const char*>(tensor.data_ptr()), tensor.nbytes());
  };
  for (const torch::Tensor& each : module.parameters()) add(each);
  return all;
}

/// What a rank that dies throws.
struct death {};

/// The moments of a step at which a rank may die.
enum class moment { before_forward, before_backward, after_backward };

struct casualty {
  int rank;  // in the world of all ranks
  std::uint64_t step;
  moment when;
};

/// What the ranks that are left have seen.
struct outcome {
  std::mutex guard;
  std::vector<std::string> bits;      // of the parameters at the end
  float passes = 0;                   // the buffer of the lowest rank at the end
  std::vector<std::uint64_t> counts;  // the user's own state at the end
  std::vector<int> sizes;             // of the world at the end
  std::map<std::uint64_t, std::map<int, std::multiset<std::size_t>>> taken;  // by step and ranks
};

/// Trains on `size` ranks, of which some die.
void train_elastic(int size, const std::vector<casualty>& casualties, outcome& seen,
                   const std::string& checkpoint = {},
                   colls::ddp::drive mode = colls::ddp::drive::thread,
                   std::uint64_t until = epochs) {
  torch::manual_seed(5);  // the generator of all threads: the networks are made one after another
  std::vector<counting_net> nets;
  for (int rank = 0; rank < size; ++rank) {
    nets.push_back(counting_net());
    if (rank > 0) {
      const torch::NoGradGuard no_graph;
      for (std::size_t i = 0; i < nets[0]->parameters().size(); ++i) {
        nets.back()->parameters()[i].copy_(nets[0]->parameters()[i]);
      }
    }
  }
  const inputs all;
  run_tcp(size, [&](colls::world& world) {
    const int me = world.rank();
    const counting_net mine = nets[static_cast<std::size_t>(me)];
    torch::optim::Adam optimizer(mine->parameters(), 1e-2);
    colls::ddp::batch_sampler sampler({.samples = all_samples, .batch = batch, .seed = 3});
    std::uint64_t count = 0;
    colls::ddp::elastic_options opts;
    opts.training.drive = mode;
    opts.checkpoint = checkpoint;
    opts.save = [&] { return std::to_string(count); };
    opts.load = [&](std::string_view own) { count = std::stoull(std::string(own)); };
    colls::ddp::elastic training(world, mine, optimizer, sampler, opts);
    try {
      training.run(until, [&](auto& model, std::span<const std::size_t> chosen) {
        const auto& at = sampler.state();
        const std::uint64_t step = at.epoch * steps + at.step;
        const auto die_at = [&](moment now) {
          for (const casualty& each : casualties) {
            if (each.rank == me && each.step == step && each.when == now) throw death();
          }
        };
        ++count;
        {
          const std::lock_guard lock(seen.guard);
          seen.taken[step][world.size()].insert(chosen.begin(), chosen.end());
        }
        die_at(moment::before_forward);
        const torch::Tensor which =
            torch::tensor(std::vector<std::int64_t>(chosen.begin(), chosen.end()));
        const torch::Tensor loss =
            torch::nll_loss(model(all.values.index({which})), all.labels.index({which}));
        die_at(moment::before_backward);
        loss.backward();
        die_at(moment::after_backward);
      });
    } catch (const death&) {
      return 0;
    }
    const std::lock_guard lock(seen.guard);
    seen.bits.push_back(bits_of(*mine));
    seen.counts.push_back(count);
    seen.sizes.push_back(world.size());
    if (world.rank() == 0) seen.passes = mine->passes.item<float>();
    return 0;
  });
}

}  // namespace

TEST_CASE("elastic training goes on with the ranks that are left") {
  const std::vector<std::vector<casualty>> histories = {
      {},
      {{2, 0, moment::before_forward}},
      {{0, 4, moment::before_backward}},
      {{1, 6, moment::after_backward}},
      {{0, 9, moment::after_backward}, {3, 9, moment::before_forward}},
      {{3, 2, moment::before_backward},
       {2, 12, moment::after_backward},
       {1, 20, moment::before_backward}},
  };
  for (const auto mode : {colls::ddp::drive::hooks, colls::ddp::drive::thread}) {
    for (const std::vector<casualty>& casualties : histories) {
      CAPTURE(static_cast<int>(mode));
      CAPTURE(casualties.size());
      outcome seen;
      train_elastic(4, casualties, seen, {}, mode);
      const std::size_t left = 4 - casualties.size();
      REQUIRE(seen.bits.size() == left);
      for (const std::string& each : seen.bits) CHECK(each == seen.bits[0]);
      for (const int each : seen.sizes) CHECK(each == static_cast<int>(left));
      CHECK(seen.passes == static_cast<float>(epochs * steps));
      // Each step is taken by all of its samples, the last time that it is taken.
      REQUIRE(seen.taken.size() == epochs * steps);
      for (const auto& [step, by_ranks] : seen.taken) {
        CAPTURE(step);
        colls::ddp::batch_sampler sampler({.samples = all_samples,
                                           .batch = batch,
                                           .seed = 3,
                                           .epoch = step / steps,
                                           .step = step % steps});
        const auto whole = sampler.batch();
        CHECK(by_ranks.begin()->second == std::multiset<std::size_t>(whole.begin(), whole.end()));
      }
    }
  }
}

TEST_CASE(
    "a rank that dies after the averages loses no step, and one that dies before repeats it") {
  outcome undisturbed, before, after;
  train_elastic(3, {}, undisturbed);
  train_elastic(3, {{2, 5, moment::before_backward}}, before);
  train_elastic(3, {{2, 5, moment::after_backward}}, after);
  CHECK(undisturbed.counts == std::vector<std::uint64_t>(3, epochs * steps));
  CHECK(before.taken.at(5).size() == 2);
  CHECK(after.taken.at(5).size() <= 2);
  // The user's own state counts a step that is taken twice once.
  for (const outcome* each : {&before, &after}) {
    REQUIRE(each->counts.size() == 2);
    for (const std::uint64_t count : each->counts) CHECK(count == epochs * steps);
  }
}

TEST_CASE("elastic training goes on from its checkpoint") {
  std::string folder = (files::temp_directory_path() / "colls-elastic-XXXXXX").string();
  REQUIRE(::mkdtemp(folder.data()) != nullptr);
  outcome whole, first, second;
  train_elastic(2, {}, whole);
  train_elastic(2, {}, first, folder + "/state", colls::ddp::drive::thread, 1);
  train_elastic(2, {}, second, folder + "/state");
  CHECK(second.taken.begin()->first == steps);
  REQUIRE(second.bits.size() == 2);
  CHECK(second.bits == whole.bits);
  CHECK(second.counts == whole.counts);
  files::remove_all(folder);
}

// The process of a rank for elastic_deaths.py. In each generation below ELASTIC_DEATHS one rank
// dies: each rank at each moment once, if there are 20 generations and 4 ranks. At the end rank 0
// writes the bits of the parameters to the file ELASTIC_RESULT.
TEST_CASE("a rank of elastic_deaths.py" * doctest::skip()) {
  constexpr int moments = 5;
  const auto deaths = static_cast<std::uint32_t>(std::atoi(std::getenv("ELASTIC_DEATHS")));
  const int status = colls::run([&](colls::world& world) {
    torch::manual_seed(5);
    const counting_net mine;
    const inputs all;
    torch::optim::Adam optimizer(mine->parameters(), 1e-2);
    colls::ddp::batch_sampler sampler({.samples = all_samples, .batch = batch, .seed = 3});
    // The generation of this rank, and how many steps it has taken in it.
    std::uint32_t generation = world.generation();
    int taken = 0;
    int saves = 0;  // since the last step
    const auto die_at = [&](int moment, int step) {
      const auto now = world.generation();
      const bool is_victim = now < deaths && static_cast<int>(now % 4) == world.rank() &&
                             static_cast<int>(now % moments) == moment;
      if (is_victim && now == generation && taken >= step) std::raise(SIGKILL);
    };
    mine->fc2->bias.register_hook([&](const torch::Tensor&) { die_at(1, 2); });
    mine->fc1->weight.register_hook([&](const torch::Tensor&) { die_at(2, 2); });
    std::uint64_t count = 0;
    colls::ddp::elastic_options opts;
    opts.training.bucket_bytes = opts.training.first_bucket_bytes = 1;
    opts.checkpoint = std::getenv("ELASTIC_CHECKPOINT");
    opts.save = [&] {
      // At the beginning of an epoch the checkpoint comes first.
      if (sampler.state().step == 0 && ++saves == 1) die_at(4, 1);
      return std::to_string(count);
    };
    opts.load = [&](std::string_view own) { count = std::stoull(std::string(own)); };
    colls::ddp::elastic training(world, mine, optimizer, sampler, opts);
    training.run(25, [&](auto& model, std::span<const std::size_t> chosen) {
      if (std::exchange(generation, world.generation()) != world.generation()) taken = 0;
      ++taken;
      ++count;
      saves = 0;
      die_at(0, 2);
      const torch::Tensor which =
          torch::tensor(std::vector<std::int64_t>(chosen.begin(), chosen.end()));
      torch::nll_loss(model(all.values.index({which})), all.labels.index({which})).backward();
      die_at(3, 2);
    });
    if (count != 25 * steps || mine->passes.item<float>() != 25 * steps) return 5;
    if (world.rank() == 0) {
      std::ofstream(std::getenv("ELASTIC_RESULT"), std::ios::binary) << bits_of(*mine);
    }
    return 0;
  });
  CHECK(status == 0);
}

TEST_CASE("elastic training refuses samplers that differ, and half of save and load") {
  std::atomic<int> refused = 0;
  run_tcp(2, [&](colls::world& world) {
    const counting_net mine;
    torch::optim::SGD optimizer(mine->parameters(), 1e-2);
    colls::ddp::batch_sampler sampler(
        {.samples = all_samples, .batch = 5 + static_cast<std::uint64_t>(world.rank()), .seed = 3});
    try {
      colls::ddp::elastic(world, mine, optimizer, sampler, {.save = [] { return std::string(); }});
    } catch (const colls::error& thrown) {
      refused += thrown.code() == errc::invalid_argument;
    }
    try {
      colls::ddp::elastic(world, mine, optimizer, sampler).run(1, [](auto&, auto) {});
    } catch (const colls::error& thrown) {
      refused += thrown.code() == errc::mismatch;
    }
    return 0;
  });
  CHECK(refused == 4);
}
