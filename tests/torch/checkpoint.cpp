// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/torch_checkpoint.hpp>

#include <colls/torch.hpp>

#include "../support/folder.hpp"
#include "../support/tcp_threads.hpp"

#include <doctest/doctest.h>

#include <filesystem>

namespace {

namespace files = std::filesystem;
using colls::ddp::sampler_state;

struct net_impl : torch::nn::Module {
  torch::nn::Linear fc1{nullptr}, fc2{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::Tensor scale;

  explicit net_impl(int width) {
    fc1 = register_module("fc1", torch::nn::Linear(4, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    register_module("dropout", torch::nn::Dropout());  // without a parameter
    fc2 = register_module("fc2", torch::nn::Linear(width, 3));
    scale = register_parameter("scale", torch::ones(3));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::log_softmax(fc2(torch::relu(norm(fc1(x)))) * scale, 1);
  }
};
using net = torch::nn::ModuleHolder<net_impl>;

struct points {
  torch::Tensor values = torch::randn({40, 4});
  torch::Tensor labels = values.slice(1, 0, 3).argmax(1);
};

void train(colls::world& world, const points& data, net module, const std::string& path,
           bool resume, std::uint64_t epochs) {
  auto model = colls::ddp::data_parallel(module, world);
  torch::optim::Adam optimizer(module->parameters(), 1e-2);
  colls::ddp::batch_sampler sampler({.samples = 40, .batch = 10, .seed = 1});
  if (resume) {
    const auto at = colls::ddp::load_checkpoint(world, path, *module, optimizer);
    sampler = colls::ddp::batch_sampler(at);
  }
  while (sampler.state().epoch < epochs) {
    const auto mine = sampler.batch(world.rank(), world.size());
    const torch::Tensor which = torch::tensor(std::vector<std::int64_t>(mine.begin(), mine.end()));
    optimizer.zero_grad();
    torch::Tensor loss =
        torch::nll_loss(model(data.values.index({which})), data.labels.index({which}));
    model.samples(which.size(0));
    loss.backward();
    optimizer.step();
    sampler.advance();
    if (sampler.state().step == 0) {
      colls::ddp::save_checkpoint(world, path, *module, optimizer, sampler.state());
    }
  }
}

bool same_parameters(const net& one, const net& other) {
  const auto some = one->parameters(), others = other->parameters();
  for (std::size_t i = 0; i < some.size(); ++i) {
    if (!torch::equal(some[i], others[i])) return false;
  }
  return true;
}

// Runs a world of one rank.
void alone(const std::function<void(colls::world&)>& rank_main) {
  REQUIRE(run_tcp(1, rank_main) == std::vector{0});
}

// The calls that docs/training.md puts beside those of torch.distributed, made by three ranks.
void as_in_torch_distributed(colls::world& world, const std::string& path) {
  const auto expect = [](bool good, const char* what) {
    if (!good) throw std::logic_error(what);
  };
  net module(6);
  torch::optim::SGD optimizer(module->parameters(), 0.1);
  const torch::Tensor x = torch::ones({4, 4});
  expect(world.rank() < world.size() && world.local_rank() < world.local_size(), "the ranks");
  {
    auto model = colls::ddp::data_parallel(module, world);
    torch::Tensor loss = model(x).sum();
    {
      const auto quiet = model.no_sync();
      loss.backward({}, true);
    }
    const int n = world.rank();
    if (n > 0) {
      model.samples(n);
      loss.backward();
    } else {
      model.take_part();
    }
  }
  const std::vector<colls::ddp::options> all{
      {.allow_unused = true},
      {.first_bucket_bytes = 1 << 20, .bucket_bytes = 25 << 20},
      {.broadcast_buffers = false},
      {.compression = colls::ddp::compression::bfloat16},
      {.drive = colls::ddp::drive::hooks},
  };
  for (const colls::ddp::options& opts : all) {
    auto model = colls::ddp::data_parallel(module, world, opts);
    model(x).sum().backward();
  }
  const std::vector ranks{0, 2};
  colls::world some = colls::sync_wait(world, world.group(ranks));
  expect(bool(some) == (world.rank() != 1), "the members of the group");
  if (some) {
    auto model = colls::ddp::data_parallel(module, some);
    model(x).sum().backward();
  }
  const std::size_t samples = 10;
  const std::uint64_t seed = 3, epoch = 1;
  const auto mine = colls::ddp::shard_indices(samples, world.rank(), world.size(),
                                              colls::ddp::uneven::pad, seed, epoch);
  expect(mine.size() == 4, "the shard");
  const colls::ddp::batch_sampler sampler({.samples = samples, .batch = 5, .seed = seed});
  colls::ddp::save_checkpoint(world, path, *module, optimizer, sampler.state());
  std::vector<float> v{1, 1};
  colls::sync_wait(world, world.all_reduce(v));
  expect(v == std::vector<float>{3, 3}, "the sum");
  auto work = world.all_reduce(v);
  colls::sync_wait(world, work);
  expect(v == std::vector<float>{9, 9}, "the sum of sums");
  colls::sync_wait(world, world.broadcast(v, 0));
  colls::sync_wait(world, world.barrier());
}

}  // namespace

TEST_CASE("training that is stopped and resumed ends with the same bits as a run in one go") {
  const folder here;
  torch::manual_seed(3);
  const points data;
  std::vector<net> full, parts;
  for (auto* const nets : {&full, &parts}) {
    for (int rank = 0; rank < 2; ++rank) {
      torch::manual_seed(5);
      nets->push_back(net(6));
    }
  }
  const auto net_of = [](const std::vector<net>& nets, const colls::world& world) {
    return nets[static_cast<std::size_t>(world.rank())];
  };
  const std::vector<int> good{0, 0};
  CHECK(run_tcp(2, [&](colls::world& world) {
          train(world, data, net_of(full, world), here / "w", false, 3);
        }) == good);
  CHECK(run_tcp(2, [&](colls::world& world) {
          train(world, data, net_of(parts, world), here / "p", false, 1);
        }) == good);
  CHECK_FALSE(same_parameters(parts[0], full[0]));
  parts = {net(6), net(6)};  // other weights, which the checkpoint replaces
  CHECK(run_tcp(2, [&](colls::world& world) {
          train(world, data, net_of(parts, world), here / "p", true, 3);
        }) == good);
  CHECK(same_parameters(parts[0], full[0]));
  CHECK(same_parameters(parts[1], full[0]));
  // libtorch reads the file by itself.
  net plain(6);
  torch::load(plain, here / "p");
  CHECK(same_parameters(plain, full[0]));
}

TEST_CASE("parameters and buffers are loaded into the module's own memory") {
  const folder here;
  alone([&](colls::world& world) {
    net one(5), other(5);
    one->forward(torch::randn({7, 4}));  // changes the running mean of the batch norm
    torch::optim::Adam from(one->parameters()), into(other->parameters());
    const sampler_state at{10, 2, UINT64_MAX, 3, 1};
    colls::ddp::save_checkpoint(world, here / "f", *one, from, at);
    const void* const memory = other->fc1->weight.data_ptr();
    CHECK(colls::ddp::load_checkpoint(world, here / "f", *other, into) == at);
    CHECK(other->fc1->weight.data_ptr() == memory);
    CHECK(same_parameters(one, other));
    CHECK(torch::equal(one->norm->running_mean, other->norm->running_mean));
  });
}

TEST_CASE(
    "a checkpoint that does not fit is one error that names file and parameter, and changes "
    "nothing") {
  const folder here;
  alone([&](colls::world& world) {
    net mine(5), narrow(4);
    torch::optim::Adam optimizer(mine->parameters()), other(narrow->parameters());
    torch::optim::SGD sgd(mine->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
    colls::ddp::save_checkpoint(world, here / "mine", *mine, optimizer, {});
    colls::ddp::save_checkpoint(world, here / "narrow", *narrow, other, {});
    torch::save(mine, here / "module");
    const auto saved = [&](const char* name, auto module) {
      torch::optim::Adam any(module->parameters());
      colls::ddp::save_checkpoint(world, here / name, *module, any, {});
    };
    net more(5), renamed(5), wide(5);
    more->register_parameter("bias", torch::ones(2));
    saved("more", more);
    more->register_module("fc3", torch::nn::Linear(2, 2));
    saved("layer", more);
    wide->to(torch::kFloat64);
    saved("double", wide);
    net before(5);
    torch::load(before, here / "mine");

    const auto refused = [&](const char* name, const std::string& words, auto& any_optimizer) {
      try {
        colls::ddp::load_checkpoint(world, here / name, *mine, any_optimizer);
        FAIL("no error: " << name);
      } catch (const colls::error& thrown) {
        const std::string message = thrown.what();
        CAPTURE(message);
        CHECK(thrown.code() == colls::errc::file_failed);
        CHECK(message.find((here / name) + ": " + words) != message.npos);
      }
      CHECK(same_parameters(mine, before));
    };
    const std::string another = "is the checkpoint of another network: ";
    refused("narrow", another + "fc1.weight is float [4, 4] in it, float [5, 4] here", optimizer);
    refused("double", another + "scale is double [3] in it, float [3] here", optimizer);
    refused("more", another + "bias is in it, not in this one", optimizer);
    refused("module", "holds a module alone, nothing to go on training from", optimizer);
    torch::optim::Adam stepped(mine->parameters());
    for (torch::Tensor& one : mine->parameters()) one.mutable_grad() = torch::zeros_like(one);
    stepped.step();
    colls::ddp::save_checkpoint(world, here / "adam", *mine, stepped, {});
    refused("adam", "has the state of another kind of optimizer", sgd);
    std::vector<char> half = colls::ddp::read_whole_file(here / "mine");
    colls::ddp::atomic_file cut(here / "half");
    cut.write(half.data(), half.size() / 2);
    cut.commit();
    refused("half", "is no checkpoint: ", optimizer);
    {
      torch::serialize::InputArchive archive;
      archive.load_from(here / "layer");
      torch::Tensor ignored;
      CHECK(archive.try_read("bias", ignored));
    }
    net bigger(5);
    bigger->register_parameter("bias", torch::ones(2));
    torch::optim::Adam for_bigger(bigger->parameters());
    CHECK_THROWS_WITH_AS(colls::ddp::load_checkpoint(world, here / "layer", *bigger, for_bigger),
                         doctest::Contains("fc3 is a part of it, not of this one"), colls::error);
    CHECK_THROWS_WITH_AS(
        colls::ddp::load_checkpoint(world, here / "mine", *bigger, for_bigger),
        doctest::Contains("mine: is the checkpoint of another network: bias is not in it"),
        colls::error);
    CHECK_THROWS_WITH_AS(colls::ddp::load_checkpoint(world, here / "more", *more, for_bigger),
                         doctest::Contains("fc3.weight is not in it"), colls::error);
  });
}

TEST_CASE("the counterparts of torch.distributed in docs/training.md work") {
  const folder here;
  CHECK(run_tcp(3, [&](colls::world& world) { as_in_torch_distributed(world, here / "f"); }) ==
        std::vector{0, 0, 0});
}
