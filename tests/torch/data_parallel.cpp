// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/torch.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "../support/tcp_threads.hpp"

namespace {

using colls::errc;
using colls::failure;
using colls::ddp::data_parallel;
using colls::ddp::drive;
using colls::ddp::options;
using statuses = std::vector<int>;
using torch::Tensor;

// Ranks on threads check by exceptions: the first exception ends the test on all ranks.
void expect(bool good, const std::string& what) {
  if (!good) throw std::logic_error(what);
}

template <class Call>
failure failure_of(const Call& call) {
  try {
    call();
  } catch (const colls::error& thrown) {
    return thrown.record();
  }
  return {};
}
bool says(const failure& why, const std::string& words) {
  return std::string(why.detail).find(words) != std::string::npos;
}

/// Two layers, and a third that a forward pass may leave out.
struct NetImpl : torch::nn::Module {
  explicit NetImpl(int hidden = 16)
      : first(register_module("first", torch::nn::Linear(6, hidden))),
        second(register_module("second", torch::nn::Linear(hidden, 3))),
        extra(register_module("extra", torch::nn::Linear(3, 3))) {}
  Tensor forward(Tensor x, bool with_extra = true) {
    x = second(torch::tanh(first(x)));
    return with_extra ? x + 0.1 * extra(x) : x;
  }
  torch::nn::Linear first, second, extra;
};
TORCH_MODULE(Net);

/// Numbers that are the same on every rank and in every run, unlike those of libtorch's generator.
Tensor numbers(torch::IntArrayRef shape, double seed, torch::ScalarType type = torch::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t each : shape) count *= each;
  const Tensor index = torch::arange(count, torch::TensorOptions(torch::kDouble));
  return torch::sin(index * 1.7 + seed).reshape(shape).to(type);
}
void fill(torch::nn::Module& net, double seed) {
  const torch::NoGradGuard no_graph;
  for (auto& each : net.parameters()) each.copy_(0.3 * numbers(each.sizes(), seed += 1));
}
Net copy_of(const Net& net) {
  Net copy;
  const torch::NoGradGuard no_graph;
  for (std::size_t i = 0; i < net->parameters().size(); ++i) {
    copy->parameters()[i].copy_(net->parameters()[i]);
  }
  return copy;
}
std::vector<Tensor> gradients(const torch::nn::Module& net) {
  std::vector<Tensor> all;
  for (const auto& each : net.parameters()) all.push_back(each.grad());
  return all;
}
void expect_close(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted,
                  double tolerance, const std::string& what) {
  expect(got.size() == wanted.size(), what);
  for (std::size_t i = 0; i < got.size(); ++i) {
    expect(got[i].defined() && got[i].sizes() == wanted[i].sizes(), what + ": its shape");
    const Tensor difference = (got[i] - wanted[i]).abs();
    const double off = difference.numel() == 0 ? 0 : difference.max().item<double>();
    expect(off <= tolerance,
           what + ": tensor " + std::to_string(i) + " is off by " + std::to_string(off));
  }
}
/// Expects that these tensors have the same bits as rank 0's.
void expect_equal_everywhere(colls::world& ranks, const std::vector<Tensor>& mine,
                             const std::string& what) {
  for (const Tensor& each : mine) {
    Tensor copy = each.detach().clone();
    colls::sync_wait(ranks, ranks.broadcast(colls::ddp::detail::bytes_of(copy), 0));
    expect(torch::equal(copy, each.detach()), what);
  }
}
/// A rank's part of a batch. The parts have different numbers of samples.
Tensor part(const Tensor& batch, int rank, int size) {
  const std::int64_t n = batch.size(0);
  const std::int64_t begin = rank == 0 ? 0 : n * rank / size + 1;
  const std::int64_t end = rank + 1 == size ? n : n * (rank + 1) / size + 1;
  return batch.slice(0, begin, end);
}
Tensor loss_of(Net& net, const Tensor& x, bool with_extra = true) {
  return net->forward(x, with_extra).square().mean();
}

TEST_CASE("training on several ranks is training on the full batch") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    for (const int size : {1, 2, 3}) {
      const auto main = [&](colls::world& ranks) {
        Net alone;
        fill(*alone, 0);
        torch::optim::Adam one(alone->parameters(), 0.01);
        Net net;
        fill(*net, ranks.rank());  // rank 0's values are used
        auto model = data_parallel(net, ranks, {.drive = mode, .first_bucket_bytes = 100});
        expect(model.rank() == ranks.rank() && model.size() == size, "rank and size");
        expect_close(net->parameters(), alone->parameters(), 0, "the parameters at first");
        torch::optim::Adam all(net->parameters(), 0.01);
        for (int step = 0; step < 8; ++step) {
          const Tensor batch = numbers({11, 6}, step);
          one.zero_grad();
          loss_of(alone, batch).backward();
          one.step();

          const Tensor mine = part(batch, ranks.rank(), size);
          all.zero_grad();
          Tensor loss = model(mine).square().mean();
          model.samples(mine.size(0));
          loss.backward();
          expect_close(gradients(*net), gradients(*alone), 1e-5, "the gradients");
          all.step();
          expect_equal_everywhere(ranks, net->parameters(), "the parameters on all ranks");
        }
        expect_close(net->parameters(), alone->parameters(), 1e-3, "the parameters in the end");
      };
      CHECK(run_tcp(size, main) == statuses(static_cast<std::size_t>(size), 0));
    }
  }
}

TEST_CASE("modules of other types train as well") {
  const auto main = [](colls::world& ranks) {
    for (const auto type : {torch::kDouble, torch::kBFloat16}) {
      auto net = std::make_shared<torch::nn::LinearImpl>(4, 2);
      net->to(type);
      auto model = data_parallel(net, ranks);
      const Tensor x = numbers({3, 4}, ranks.rank(), type);
      model->forward(x).sum().backward();
      Tensor wanted = torch::zeros({4}, torch::TensorOptions(torch::kDouble));
      for (int rank = 0; rank < ranks.size(); ++rank) {
        wanted += numbers({3, 4}, rank, type).to(torch::kDouble).sum(0) / ranks.size();
      }
      const double off =
          (net->weight.grad().to(torch::kDouble) - wanted).abs().max().item<double>();
      expect(off <= (type == torch::kDouble ? 1e-12 : 0.05), "the gradient");
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("another shape on one rank is one clear error on all, and nothing is overwritten") {
  std::vector<std::string> details(3);
  const auto main = [&](colls::world& ranks) {
    Net net(ranks.rank() == 2 ? 8 : 16);
    fill(*net, ranks.rank());
    const auto before = net->first->weight.detach().clone();
    const failure why = failure_of([&] { data_parallel(net, ranks); });
    expect(why.code == errc::mismatch && why.culprit == 2, "the code and the rank");
    details[static_cast<std::size_t>(ranks.rank())] = why.detail;
    expect(torch::equal(net->first->weight.detach(), before), "it is untouched");
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  for (const std::string& each : details) {
    CHECK(each == "parameter 'first.weight' is float [16, 6] on rank 0 and float [8, 6] on rank 2");
  }
}

TEST_CASE("what cannot be trained is refused before anything is sent") {
  CHECK(run_tcp(1, [](colls::world& ranks) {
          const auto refused = [&](const auto& net, const char* words) {
            const failure why = failure_of([&] { data_parallel(net, ranks); });
            expect(why.code == errc::invalid_argument && says(why, words), words);
          };
          Net frozen;
          for (auto& each : frozen->parameters()) each.set_requires_grad(false);
          refused(frozen, "requires a gradient");
          refused(torch::nn::Dropout(), "requires a gradient");  // no parameters at all
          Net mixed;
          mixed->second->to(torch::kDouble);
          refused(mixed, "'second.weight' is Double");
          const auto with = [](const Tensor& weight) {
            auto net = std::make_shared<torch::nn::LinearImpl>(4, 2);
            net->register_parameter("odd", weight);
            return net;
          };
          refused(with(torch::ones({4, 4}).slice(1, 0, 2)), "'odd' is not in one piece");
          refused(with(torch::ones({2, 1}).expand({2, 3})), "'odd' is not in one piece");
          refused(with(torch::ones({2}, torch::kComplexFloat)), "'odd' is ComplexFloat");
        }) == statuses{0});
}

TEST_CASE("options that differ are an error on all ranks, whichever they are") {
  const auto main = [](colls::world& ranks) {
    const bool one = ranks.rank() == 1;
    const auto refused = [&](const options& opts, const char* words) {
      Net net;
      const failure why = failure_of([&] { data_parallel(net, ranks, opts); });
      expect(why.code == errc::mismatch && says(why, words), words);
    };
    refused({.bucket_bytes = one ? 7u : 8u},
            "option 'bucket_bytes' is 8 on rank 0 and 7 on rank 1");
    refused({.drive = drive::hooks, .allow_unused = one}, "'allow_unused' is 0 on rank 0 and 1");
    // The call that duplicates the world detects this and revokes the world: it comes last.
    refused({.drive = one ? drive::thread : drive::hooks}, "");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("an unused parameter is named by backward(), unless the options allow it") {
  const auto main = [](colls::world& ranks) {
    const Tensor x = numbers({4, 6}, ranks.rank());
    {
      Net net;
      auto model = data_parallel(net, ranks);
      const failure why = failure_of([&] { loss_of(net, x, ranks.rank() != 1).backward(); });
      expect(why.code == errc::revoked && why.culprit == 1, "the code and the rank");
      expect(says(why, "parameters 'extra.weight', 'extra.bias' got no gradient"), "the names");
    }
    colls::sync_wait(ranks, ranks.barrier());
    Net net;
    auto model = data_parallel(net, ranks, {.allow_unused = true});
    loss_of(net, x, false).backward();
    expect(!net->extra->weight.grad().defined(), "used by no rank: it has no gradient");
    loss_of(net, x, ranks.rank() == 0).backward();
    expect(net->extra->weight.grad().defined(), "used by rank 0: all ranks have the gradient");
    expect_equal_everywhere(ranks, gradients(*net), "the gradients on all ranks");
    Net alone = copy_of(net);
    loss_of(alone, numbers({4, 6}, 0)).backward();
    expect_close({net->extra->weight.grad()}, {alone->extra->weight.grad() / ranks.size()}, 1e-6,
                 "the others count as zero");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a gradient that was not cleared counts if a later step does not reach it") {
  const auto main = [](colls::world& ranks) {
    for (const bool by_rank_0 : {true, false}) {
      Net net, alone;
      fill(*net, 0);
      fill(*alone, 0);
      auto model = data_parallel(net, ranks, {.allow_unused = true});
      const Tensor x = numbers({4, 6}, 1), y = numbers({4, 6}, 2);
      loss_of(net, x).backward();
      loss_of(net, y, by_rank_0 && ranks.rank() == 0).backward();  // no zero_grad before it
      loss_of(alone, x).backward();
      const Tensor first = alone->extra->weight.grad().clone();
      alone->zero_grad();
      loss_of(alone, y).backward();
      const Tensor second = alone->extra->weight.grad() / ranks.size();
      expect_close({net->extra->weight.grad()}, {by_rank_0 ? first + second : first}, 1e-6,
                   "the sum of both steps' averages");
      expect_equal_everywhere(ranks, {net->extra->weight.grad()}, "on all ranks");
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("gradients that accumulate under no_sync are averaged by the next backward") {
  const auto main = [](colls::world& ranks) {
    Net alone;
    fill(*alone, 0);
    Net net;
    fill(*net, 0);
    auto model = data_parallel(net, ranks);
    for (int step = 0; step < 3; ++step) {
      alone->zero_grad();
      net->zero_grad();
      const Tensor batch = numbers({12, 6}, step);
      loss_of(alone, batch).backward();
      const std::vector<Tensor> pieces = part(batch, ranks.rank(), ranks.size()).chunk(3);
      std::int64_t mine = 0;
      for (const Tensor& each : pieces) mine += each.size(0);
      const auto share = [&](const Tensor& piece) {
        return loss_of(net, piece) * (double(piece.size(0)) / double(mine));
      };
      {
        const auto quiet = model.no_sync();
        for (std::size_t i = 0; i + 1 < pieces.size(); ++i) share(pieces[i]).backward();
      }
      model.samples(mine);
      share(pieces.back()).backward();
      expect_close(gradients(*net), gradients(*alone), 1e-6, "the gradients");
    }
    // A gradient that accumulated, but that the last backward did not reach, counts as well.
    net->zero_grad();
    const Tensor x = numbers({4, 6}, 1);
    {
      const auto quiet = model.no_sync();
      loss_of(net, x).backward();
    }
    const Tensor accumulated = net->extra->weight.grad().clone();
    loss_of(net, x, false).backward();
    expect_close({net->extra->weight.grad()}, {accumulated}, 1e-6, "the accumulated gradient");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a rank without a batch takes part and holds the average") {
  const auto main = [](colls::world& ranks) {
    Net net;
    auto model = data_parallel(net, ranks);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      // In the first step rank 0 is idle, although its order of gradients orders the buckets.
      const bool idle = ranks.rank() == step % 3;
      if (idle) {
        model.take_part();
      } else {
        model.samples(4);
        loss_of(net, numbers({4, 6}, step)).backward();
      }
      Net alone = copy_of(net);
      loss_of(alone, numbers({4, 6}, step)).backward();
      expect_close(gradients(*net), gradients(*alone), 1e-6, "the gradients");
      optimizer.step();
    }
    expect_equal_everywhere(ranks, net->parameters(), "the parameters on all ranks");
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE(
    "buffers are rank 0's at the start and after each backward, unless the options say otherwise") {
  const auto main = [](colls::world& ranks) {
    for (const bool broadcast : {true, false}) {
      torch::nn::BatchNorm1d norm(5);
      norm->running_mean.fill_(ranks.rank() + 1);
      auto model = data_parallel(norm, ranks, {.broadcast_buffers = broadcast});
      expect(norm->running_mean[0].item<float>() == 1, "at the start");
      for (int step = 0; step < 3; ++step) {
        model(numbers({8, 5}, step + 10 * ranks.rank())).square().sum().backward();
      }
      std::vector<Tensor> first;
      for (const auto& each : norm->buffers()) {
        first.push_back(each.clone());
        colls::sync_wait(ranks, ranks.broadcast(colls::ddp::detail::bytes_of(first.back()), 0));
      }
      const bool equal = torch::equal(first[0], norm->buffers()[0]);
      expect(equal == (broadcast || ranks.rank() == 0), "the running mean");
      expect(norm->num_batches_tracked.item<std::int64_t>() == 3, "the number of batches");
      expect(norm->running_mean[0].item<float>() != 1, "it is updated");
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a module stays as it is: gradients outlive the training, and it may be trained again") {
  const auto main = [](colls::world& ranks) {
    Net net;
    const Tensor x = numbers({4, 6}, 0);
    for (int round = 0; round < 2; ++round) {
      {
        auto model = data_parallel(net, ranks);
        auto moved = std::move(model);
        for (int step = 0; step < 2; ++step) {
          net->zero_grad(step == 0);
          moved->forward(x).square().mean().backward();
        }
      }
      const std::vector<Tensor> kept = gradients(*net);
      Net alone = copy_of(net);
      loss_of(alone, x).backward();
      expect_close(kept, gradients(*alone), 1e-6, "the gradients afterwards");
      net->zero_grad();
      loss_of(net, ranks.rank() == 0 ? x : 2 * x).backward();
      if (ranks.rank() == 0) expect_close(gradients(*net), gradients(*alone), 1e-6, "on its own");
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a rank that leaves is named by backward() on the others") {
  const auto main = [](colls::world& ranks) {
    Net net;
    const Tensor x = numbers({4, 6}, 0);
    {
      auto model = data_parallel(net, ranks);
      loss_of(net, x).backward();
      colls::sync_wait(ranks, ranks.barrier());  // all ranks have ended this step
      if (ranks.rank() != 1) {
        const failure why = failure_of([&] { loss_of(net, x).backward(); });
        expect(why.code == errc::closed && why.culprit == 1, "the code and the rank");
        // After that every call fails.
        expect(failure_of([&] { loss_of(net, x).backward(); }).culprit == 1, "again");
      }
    }
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

// Calls `callback` when the backward pass reaches this tensor.
template <class Callback>
Tensor in_backward(const Tensor& value, Callback callback) {
  value.register_hook([callback](Tensor gradient) {
    callback();
    return gradient;
  });
  return value;
}
Tensor loss_with(Net& net, const Tensor& x, const std::function<void()>& in_the_middle) {
  const Tensor inner = in_backward(torch::tanh(net->first(x)), in_the_middle);
  const Tensor y = net->second(inner);
  return (y + 0.1 * net->extra(y)).square().mean();
}

TEST_CASE("an exception inside backward() ends the step on all ranks, and names the rank") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](colls::world& ranks) {
      Net net;
      auto model = data_parallel(net, ranks, {.drive = mode, .first_bucket_bytes = 1});
      const Tensor x = numbers({4, 6}, 0);
      loss_of(net, x).backward();
      colls::sync_wait(ranks, ranks.barrier());  // all ranks have ended this step
      const auto check = [](const failure& why) {
        expect(why.code == errc::revoked && why.culprit == 1, "the code and the rank");
        expect(says(why, "an exception ended backward() in the middle of a step"), "the reason");
      };
      if (ranks.rank() == 1) {
        std::string message;
        try {
          loss_with(net, x, [] { throw std::runtime_error("the user's own"); }).backward();
        } catch (const std::runtime_error& thrown) {
          message = thrown.what();
        }
        expect(message.find("the user's own") == 0, "its own error");
        // This rank catches its error and continues.
        colls::sync_wait(ranks, ranks.barrier());
      } else {
        check(failure_of([&] { loss_of(net, x).backward(); }));
        colls::sync_wait(ranks, ranks.barrier());
      }
      check(failure_of([&] { loss_of(net, x).backward(); }));
      check(failure_of([&] { model.take_part(); }));
    };
    CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  }
}

TEST_CASE(
    "a wrapper that is destroyed inside backward() leaves the module unchanged and no rank "
    "waiting") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](colls::world& ranks) {
      Net net;
      const auto x = numbers({4, 6}, 0);
      std::optional<data_parallel<NetImpl, colls::world>> model;
      model.emplace(net, ranks, options{.drive = mode, .first_bucket_bytes = 1});
      loss_of(net, x).backward();
      colls::sync_wait(ranks, ranks.barrier());  // all ranks have ended this step
      net->zero_grad();
      if (ranks.rank() == 1) {
        loss_with(net, x, [&] { model.reset(); }).backward();
        Net alone = copy_of(net);
        loss_of(alone, x).backward();
        expect_close({net->first->weight.grad()}, {alone->first->weight.grad()}, 1e-6, "its own");
      } else {
        const failure why = failure_of([&] { loss_of(net, x).backward(); });
        expect(why.code != errc{} && why.culprit == 1, "the rank that left");
      }
      colls::sync_wait(ranks, ranks.barrier());
    };
    CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  }
}

TEST_CASE("two models of one world train in turn and in one backward") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](colls::world& ranks) {
      Net one(8), other(8), alone_one(8), alone_other(8);
      for (auto* const net : {&one, &alone_one}) fill(**net, 0);
      for (auto* const net : {&other, &alone_other}) fill(**net, 9);
      auto first = data_parallel(one, ranks, {.drive = mode, .first_bucket_bytes = 64});
      auto second = data_parallel(other, ranks, {.drive = mode, .first_bucket_bytes = 64});
      // The second model judges what the first makes, as in a generative adversarial network.
      const auto both = [](Net& maker, Net& judge, const Tensor& x) {
        return judge->forward(torch::cat({maker->forward(x), x.slice(1, 0, 3)}, 1)).square().mean();
      };
      for (int step = 0; step < 3; ++step) {
        const Tensor batch = numbers({10, 6}, step);
        const Tensor mine = batch.chunk(ranks.size())[ranks.rank()];
        for (auto* const net : {&one, &other, &alone_one, &alone_other}) (*net)->zero_grad();
        both(one, other, mine).backward();
        loss_of(other, mine).backward();
        both(alone_one, alone_other, batch).backward();
        loss_of(alone_other, batch).backward();
        expect_close(gradients(*one), gradients(*alone_one), 1e-6, "the maker's gradients");
        expect_close(gradients(*other), gradients(*alone_other), 1e-6, "the judge's gradients");
      }
    };
    CHECK(run_tcp(2, main) == statuses{0, 0});
  }
}

TEST_CASE("a penalty on a gradient, and a backward that keeps its graph") {
  const auto main = [](colls::world& ranks) {
    Net net, alone;
    fill(*net, 0);
    fill(*alone, 0);
    auto model = data_parallel(net, ranks);
    const Tensor batch = numbers({8, 6}, 3);
    const Tensor mine = batch.chunk(ranks.size())[ranks.rank()];
    const auto penalised = [](Net& network, Tensor x) {
      x = x.detach().requires_grad_(true);
      const Tensor y = network->forward(x);
      const Tensor slope = torch::autograd::grad({y.sum()}, {x}, {}, true, true)[0];
      return y.square().mean() + slope.square().sum(1).mean();
    };
    penalised(net, mine).backward();
    penalised(alone, batch).backward();
    expect_close(gradients(*net), gradients(*alone), 1e-6, "with the penalty");
    // Twice through the same graph: the averages add up.
    net->zero_grad();
    alone->zero_grad();
    const Tensor kept = loss_of(net, mine), alone_kept = loss_of(alone, batch);
    for (const bool again : {true, false}) {
      kept.backward({}, again);
      alone_kept.backward({}, again);
    }
    expect_close(gradients(*net), gradients(*alone), 1e-6, "twice");
    net->zero_grad();
    loss_of(net, mine).backward({}, true, true);  // create_graph
    alone->zero_grad();
    loss_of(alone, batch).backward();
    expect_close(gradients(*net), gradients(*alone), 1e-6, "with a graph");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

/// Computes its forward again in backward, by a nested backward, to keep less in memory.
struct recomputed : torch::autograd::Function<recomputed> {
  using part = std::function<Tensor(Tensor)>;
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const part* stage) {
    context->save_for_backward({x});
    context->saved_data["part"] = reinterpret_cast<std::int64_t>(stage);
    return (*stage)(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradient) {
    const auto* const stage = reinterpret_cast<const part*>(context->saved_data["part"].toInt());
    const torch::AutoGradMode with_graph(true);
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    torch::autograd::backward({(*stage)(x)}, {gradient[0]});
    return {x.grad(), Tensor()};
  }
};

TEST_CASE("a backward inside backward is a part of the same step") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](colls::world& ranks) {
      Net net, alone;
      fill(*net, 0);
      fill(*alone, 0);
      auto model = data_parallel(net, ranks, {.drive = mode, .first_bucket_bytes = 1});
      const recomputed::part inner = [&](const Tensor& x) {
        return net->second(torch::tanh(net->first(x)));
      };
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        alone->zero_grad();
        const Tensor batch = numbers({8, 6}, step);
        const Tensor mine = batch.chunk(ranks.size())[ranks.rank()];
        net->extra(recomputed::apply(mine.clone().requires_grad_(true), &inner))
            .square()
            .mean()
            .backward();
        alone->extra(alone->second(torch::tanh(alone->first(batch)))).square().mean().backward();
        expect_close(gradients(*net), gradients(*alone), 1e-6, "the gradients");
      }
    };
    CHECK(run_tcp(2, main) == statuses{0, 0});
  }
}

/// Parameters of odd kinds; their sum of squares weighs the input.
struct OddImpl : torch::nn::Module {
  OddImpl() {
    turned = register_parameter("turned", numbers({5, 3}, 1).t());
    sliced = register_parameter(
        "last channels", torch::ones({2, 3, 2, 2}).contiguous(torch::MemoryFormat::ChannelsLast));
    scalar = register_parameter("scalar", torch::ones({}));
    empty = register_parameter("empty", torch::ones({0, 4}));
    frozen = register_parameter("frozen", torch::ones({3}), false);
    counts = register_parameter("counts", torch::ones({2}, torch::kLong), false);
    twice = register_parameter("twice", turned);
    mask = register_buffer("mask", torch::ones({3}, torch::kBool));
  }
  Tensor forward(const Tensor& x) {
    const Tensor wide = torch::matmul(x.slice(1, 0, 3), turned);
    return wide.square().mean() * scalar + (sliced * x.sum()).square().mean() + empty.sum() +
           (twice * frozen.unsqueeze(1)).sum();
  }
  Tensor turned, sliced, scalar, empty, frozen, counts, twice, mask;
};
TORCH_MODULE(Odd);

TEST_CASE("parameters that are transposed, empty, single, shared, frozen or integers") {
  for (const drive mode : {drive::thread, drive::hooks}) {
    const auto main = [&](colls::world& ranks) {
      Odd net, alone;
      if (ranks.rank() != 0) {
        const torch::NoGradGuard no_graph;
        for (auto& each : net->parameters()) each.zero_();
        net->mask.zero_();
      }
      auto model = data_parallel(net, ranks, {.drive = mode});
      expect_close(net->parameters(), alone->parameters(), 0, "rank 0's values");
      expect(net->mask.all().item<bool>() && net->counts.sum().item<int>() == 2,
             "buffers and frozen parameters of other types, too");
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        alone->zero_grad();
        model(numbers({2, 6}, ranks.rank())).backward();
        Tensor full = alone->forward(numbers({2, 6}, 0));
        for (int rank = 1; rank < ranks.size(); ++rank) {
          full = full + alone->forward(numbers({2, 6}, rank));
        }
        (full / ranks.size()).backward();
        expect_close({net->turned.grad(), net->sliced.grad(), net->scalar.grad()},
                     {alone->turned.grad(), alone->sliced.grad(), alone->scalar.grad()}, 1e-4,
                     "the gradients");
        expect(net->turned.grad().strides() == net->turned.strides(), "laid out as the parameter");
        expect(net->empty.grad().numel() == 0, "an empty gradient");
        expect(!net->frozen.grad().defined(), "frozen");
      }
    };
    CHECK(run_tcp(2, main) == statuses{0, 0});
  }
}

TEST_CASE(
    "a parameter or gradient that is converted after the start is refused, not silently left out") {
  CHECK(run_tcp(1, [](colls::world& ranks) {
          Net net;
          auto model = data_parallel(net, ranks);
          net->first->weight.mutable_grad() = torch::zeros({16, 6}, torch::kDouble);
          failure why = failure_of([&] { loss_of(net, numbers({2, 6}, 0)).backward(); });
          expect(why.code == errc::invalid_argument, "a gradient of another type");
          expect(says(why, "'first.weight' has another type or shape"), "the gradient's name");

          Net converted;
          auto other = data_parallel(converted, ranks, {.allow_unused = true});
          converted->second->to(torch::kDouble);
          const Tensor x = numbers({2, 6}, 0);
          const std::vector<std::function<void()>> calls{
              [&] { other(x); },
              [&] { other.samples(2); },
              [&] { other.take_part(); },
              [&] { converted->first(x).sum().backward(); },
          };
          for (const auto& call : calls) {
            why = failure_of(call);
            expect(why.code == errc::invalid_argument, "the code");
            expect(says(why, "'second.weight' has been converted"), "the name");
          }
        }) == statuses{0});
}

TEST_CASE(
    "gradients that are sent in 16 bits are nearly those of the full batch, with the same bits") {
  using colls::ddp::compression;
  for (const auto& [format, tolerance] :
       {std::pair(compression::bfloat16, 1e-2), std::pair(compression::float16, 1e-3)}) {
    const options opts{.compression = format};
    const double off = tolerance;
    const auto main = [&](colls::world& ranks) {
      Net net, alone;
      fill(*net, 0);
      fill(*alone, 0);
      auto model = data_parallel(net, ranks, opts);
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        alone->zero_grad();
        const Tensor batch = numbers({11, 6}, step);
        const Tensor mine = part(batch, ranks.rank(), ranks.size());
        model.samples(mine.size(0));
        model(mine).square().mean().backward();
        loss_of(alone, batch).backward();
        expect_close(gradients(*net), gradients(*alone), off, "the gradients");
        expect_equal_everywhere(ranks, gradients(*net), "the gradients on all ranks");
      }
    };
    CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  }
}

TEST_CASE("an empty batch counts for nothing, although its mean is NaN") {
  const auto main = [](colls::world& ranks) {
    Net net, alone;
    fill(*net, 0);
    fill(*alone, 0);
    auto model = data_parallel(net, ranks);
    const std::int64_t mine = ranks.rank() == 1 ? 0 : 4;
    const Tensor loss = loss_of(net, numbers({4, 6}, 0).slice(0, 0, mine));
    expect(std::isnan(loss.item<float>()) == (mine == 0), "a mean of nothing");
    model.samples(mine);
    loss.backward();
    loss_of(alone, numbers({4, 6}, 0)).backward();
    expect_close(gradients(*net), gradients(*alone), 1e-6, "the gradients");
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("a forward pass in eval mode does not disturb training") {
  const auto main = [](colls::world& ranks) {
    torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::BatchNorm1d(8),
                              torch::nn::Dropout(0.5), torch::nn::Linear(8, 3));
    auto model = data_parallel(net, ranks);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 3; ++step) {
      model->train();
      optimizer.zero_grad();
      model->forward(numbers({8, 6}, step + ranks.rank())).square().mean().backward();
      optimizer.step();
      model->eval();
      const torch::NoGradGuard no_graph;
      // Only one rank calls the model, and no rank waits for another.
      if (ranks.rank() == 1) model->forward(numbers({3, 6}, 0));
      const Tensor result = model->forward(numbers({5, 6}, 1));
      expect_equal_everywhere(ranks, {result}, "all ranks get the same result");
    }
    // Backward in eval mode leaves the running mean of the batch norm as it is.
    const Tensor mean = net->named_buffers()["1.running_mean"].clone();
    net->zero_grad();
    model->forward(numbers({8, 6}, ranks.rank())).square().mean().backward();
    expect(torch::equal(mean, net->named_buffers()["1.running_mean"]), "the running mean");
    expect_equal_everywhere(ranks, gradients(*net), "the gradients");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("the first bucket's all_reduce begins before the last gradient is ready") {
  const auto main = [](colls::world& ranks) {
    colls::ddp::timeline seen;
    Net net;
    auto model =
        data_parallel(net, ranks, {.first_bucket_bytes = 1, .bucket_bytes = 1, .trace = &seen});
    const Tensor x = numbers({4, 6}, 0);
    loss_of(net, x).backward();
    // The callback waits for the first bucket's sum before the first layer has gradients.
    bool begun = false;
    loss_with(net, x, [&] {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
      while (!begun && std::chrono::steady_clock::now() < until) {
        std::this_thread::yield();
        begun = std::atomic_ref(seen.buckets[0].begin).load() != 0;
      }
    }).backward();
    expect(begun, "it begins while backward is held up");
    const auto last = *std::max_element(seen.ready.begin(), seen.ready.end());
    expect(seen.buckets[0].begin < last, "before the last gradient");
    expect(last == seen.ready[0] || last == seen.ready[1], "which is one of the first layer");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a step records its timeline") {
  const auto main = [](colls::world& ranks) {
    colls::ddp::timeline seen;
    Net net;
    auto model =
        data_parallel(net, ranks, {.first_bucket_bytes = 1, .bucket_bytes = 1, .trace = &seen});
    for (int step = 0; step < 2; ++step) {
      loss_of(net, numbers({4, 6}, 0)).backward();
      expect(seen.ready.size() == 6 && seen.buckets.size() == 6, "parameters and buckets");
      expect(seen.begin != 0, "the beginning");
      for (const auto at : seen.ready) expect(at >= seen.begin && at <= seen.end, "ready");
      for (const auto& each : seen.buckets) {
        expect(each.begin >= seen.begin && each.end >= each.begin && each.end <= seen.end, "sums");
      }
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

}  // namespace
