// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/torch.hpp>

#include <doctest/doctest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "../tcp_threads.hpp"

namespace {

using colls::errc;
using colls::failure;
using colls::world;
using colls::ddp::data_parallel;
using colls::ddp::drive;
using colls::ddp::options;
using statuses = std::vector<int>;
using torch::Tensor;

// Ranks on threads check by exceptions: the first one ends the test, and the others with it.
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

/// Two layers, and one that is used if somebody asks for it.
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

/// The same on every rank and in every run, whatever libtorch's own generator gives.
Tensor numbers(torch::IntArrayRef shape, double seed, torch::ScalarType type = torch::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t each : shape) count *= each;
  const Tensor at = torch::arange(count, torch::TensorOptions(torch::kDouble));
  return torch::sin(at * 1.7 + seed).reshape(shape).to(type);
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
    const double off = (got[i] - wanted[i]).abs().max().item<double>();
    expect(off <= tolerance,
           what + ": tensor " + std::to_string(i) + " is off by " + std::to_string(off));
  }
}
/// Bit for bit rank 0's.
void expect_equal_everywhere(world& ranks, const std::vector<Tensor>& mine,
                             const std::string& what) {
  for (const Tensor& each : mine) {
    Tensor copy = each.detach().clone();
    colls::sync_wait(ranks, ranks.broadcast(colls::ddp::detail::bytes_of(copy), 0));
    expect(torch::equal(copy, each.detach()), what);
  }
}
/// Rank r's part of a batch: not the same number for all ranks.
Tensor part(const Tensor& batch, int rank, int size) {
  const std::int64_t n = batch.size(0);
  const std::int64_t begin = rank == 0 ? 0 : n * rank / size + 1;
  const std::int64_t end = rank + 1 == size ? n : n * (rank + 1) / size + 1;
  return batch.slice(0, begin, end);
}
Tensor loss_of(Net& net, const Tensor& x, bool with_extra = true) {
  return net->forward(x, with_extra).square().mean();
}

TEST_CASE("training on several ranks is training on the whole batch") {
  for (const drive how : {drive::thread, drive::hooks}) {
    for (const int size : {1, 2, 3}) {
      const auto main = [&](world& ranks) {
        Net alone;
        fill(*alone, 0);
        torch::optim::Adam one(alone->parameters(), 0.01);
        Net net;
        fill(*net, ranks.rank());  // rank 0's are taken
        auto model = data_parallel(net, ranks, {.drive = how, .first_bucket_bytes = 100});
        expect(model.rank() == ranks.rank() && model.size() == size, "its place");
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
  const auto main = [](world& ranks) {
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
  std::vector<std::string> said(3);
  const auto main = [&](world& ranks) {
    Net net(ranks.rank() == 2 ? 8 : 16);
    fill(*net, ranks.rank());
    const auto before = net->first->weight.detach().clone();
    const failure why = failure_of([&] { data_parallel(net, ranks); });
    expect(why.code == errc::mismatch && why.culprit == 2, "the code and the rank");
    said[static_cast<std::size_t>(ranks.rank())] = why.detail;
    expect(torch::equal(net->first->weight.detach(), before), "it is untouched");
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
  for (const std::string& each : said) {
    CHECK(each == "parameter 'first.weight' is float [16, 6] on rank 0 and float [8, 6] on rank 2");
  }
}

TEST_CASE("what cannot be trained is refused before anything is sent") {
  CHECK(run_tcp(1, [](world& ranks) {
          Net frozen;
          for (auto& each : frozen->parameters()) each.set_requires_grad(false);
          expect(says(failure_of([&] { data_parallel(frozen, ranks); }), "requires a gradient"),
                 "nothing to train");
          Net mixed;
          mixed->second->to(torch::kDouble);
          expect(
              says(failure_of([&] { data_parallel(mixed, ranks); }), "'second.weight' is Double"),
              "two types");
        }) == statuses{0});
}

TEST_CASE("an unused parameter is named by backward(), and allowed if one says so") {
  const auto main = [](world& ranks) {
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
    expect(!net->extra->weight.grad().defined(), "used by nobody: it has no gradient");
    loss_of(net, x, ranks.rank() == 0).backward();
    expect(net->extra->weight.grad().defined(), "used by rank 0: all have the gradient");
    expect_equal_everywhere(ranks, gradients(*net), "the gradients on all ranks");
    Net alone = copy_of(net);
    loss_of(alone, numbers({4, 6}, 0)).backward();
    expect_close({net->extra->weight.grad()}, {alone->extra->weight.grad() / ranks.size()}, 1e-6,
                 "the others count as zero");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("gradients that gather while it is quiet are averaged by the next backward") {
  const auto main = [](world& ranks) {
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
    // What only gathered and was not reached by the last backward counts all the same.
    net->zero_grad();
    const Tensor x = numbers({4, 6}, 1);
    {
      const auto quiet = model.no_sync();
      loss_of(net, x).backward();
    }
    const Tensor gathered = net->extra->weight.grad().clone();
    loss_of(net, x, false).backward();
    expect_close({net->extra->weight.grad()}, {gathered}, 1e-6, "what had gathered");
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a rank without a batch takes part and holds the average") {
  const auto main = [](world& ranks) {
    Net net;
    auto model = data_parallel(net, ranks);
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int step = 0; step < 4; ++step) {
      optimizer.zero_grad();
      // In the first step rank 0 has none, whose order of gradients counts.
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

TEST_CASE("buffers are rank 0's at the start and after each backward, unless one says otherwise") {
  const auto main = [](world& ranks) {
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
      expect(norm->running_mean[0].item<float>() != 1, "it runs");
    }
  };
  CHECK(run_tcp(2, main) == statuses{0, 0});
}

TEST_CASE("a module stays as it is: gradients outlive the training, and it may be trained again") {
  const auto main = [](world& ranks) {
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
  const auto main = [](world& ranks) {
    Net net;
    const Tensor x = numbers({4, 6}, 0);
    {
      auto model = data_parallel(net, ranks);
      loss_of(net, x).backward();
      if (ranks.rank() != 1) {
        const failure why = failure_of([&] { loss_of(net, x).backward(); });
        expect(why.code == errc::closed && why.culprit == 1, "the code and the rank");
        // And nothing more can be done.
        expect(failure_of([&] { loss_of(net, x).backward(); }).culprit == 1, "again");
      }
    }
    colls::sync_wait(ranks, ranks.barrier());
  };
  CHECK(run_tcp(3, main) == statuses{0, 0, 0});
}

TEST_CASE("one step can be drawn") {
  const auto main = [](world& ranks) {
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
