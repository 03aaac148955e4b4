// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/torch_tensor.hpp>

#include <colls/inproc.hpp>

#include <doctest/doctest.h>
#include <torch/torch.h>

#include "../support/communicators.hpp"

// Calls on the tensors of libtorch.

namespace {

using colls::errc;
using torch::Tensor;

/// The same numbers on every rank, in a layout that depends on the rank.
Tensor laid_out(const Tensor& values, int rank) {
  switch (rank % 4) {
    case 0:
      return values.contiguous().clone();
    case 1:
      return values.t().contiguous().clone().t();
    case 2:
      return torch::stack({values, values}, 2).select(2, 1);  // every second element
    default:
      return torch::cat({values, values}).slice(0, 1, 1 + values.size(0)).copy_(values);
  }
}
std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

std::vector<Tensor> of_all_ranks(int size, const Tensor& values) {
  std::vector<Tensor> tensors;
  for (int rank = 0; rank < size; ++rank) tensors.push_back(laid_out(values, rank));
  return tensors;
}

TEST_CASE("tensors of each type and layout are reduced") {
  for (const auto type : {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
                          torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64,
                          torch::kComplexFloat, torch::kComplexDouble}) {
    CAPTURE(c10::toString(type));
    communicators all(4);
    const Tensor values = torch::arange(12).reshape({3, 4}).to(type);
    std::vector<Tensor> tensors = of_all_ranks(4, values);
    all.all([&](auto& comm) { return comm.all_reduce(tensors[index(comm.rank())]); });
    for (const Tensor& each : tensors) CHECK(torch::equal(each, 4 * values));
  }
  communicators all(2);
  std::vector<Tensor> flags = of_all_ranks(2, torch::eye(3, 4).to(torch::kBool));
  all.all(
      [&](auto& comm) { return comm.all_reduce(flags[index(comm.rank())], colls::logical_or{}); });
  CHECK(torch::equal(flags[0], torch::eye(3, 4).to(torch::kBool)));
}

TEST_CASE("every call takes tensors, whose layouts differ between ranks") {
  constexpr int size = 3;
  communicators all(size);
  const Tensor values = torch::arange(20 * 30).reshape({20, 30}).to(torch::kFloat32);
  std::vector<Tensor> own, parts;
  for (int rank = 0; rank < size; ++rank) {
    own.push_back(laid_out(values + 1000 * rank, rank + 1));
    parts.push_back(laid_out(values, rank));
  }
  const auto of = [](std::vector<Tensor>& tensors, auto& comm) -> Tensor& {
    return tensors[index(comm.rank())];
  };
  std::vector<Tensor> gathered = of_all_ranks(size, torch::zeros({size * 20, 30}));
  all.all([&](auto& comm) { return comm.all_gather(of(own, comm), of(gathered, comm)); });
  const Tensor everything = torch::cat({values, values + 1000, values + 2000});
  for (const Tensor& each : gathered) CHECK(torch::equal(each, everything));

  std::vector<Tensor> at_root = of_all_ranks(size, torch::zeros({size * 20, 30}));
  all.all([&](auto& comm) {
    return comm.rank() == 1 ? comm.gather(of(own, comm), of(at_root, comm), 1)
                            : comm.gather(of(own, comm), colls::none, 1);
  });
  CHECK(torch::equal(at_root[1], everything));
  all.all([&](auto& comm) {
    return comm.rank() == 1 ? comm.scatter(of(at_root, comm), of(parts, comm), 1)
                            : comm.scatter(colls::none, of(parts, comm), 1);
  });
  for (int rank = 0; rank < size; ++rank) {
    CHECK(torch::equal(parts[index(rank)], values + 1000 * rank));
  }
  std::vector<Tensor> exchanged = of_all_ranks(size, torch::zeros({size * 20, 30}));
  all.all([&](auto& comm) { return comm.all_to_all(of(gathered, comm), of(exchanged, comm)); });
  CHECK(torch::equal(exchanged[2], (values + 2000).repeat({size, 1})));
  all.all([&](auto& comm) { return comm.reduce_scatter(of(gathered, comm), of(parts, comm)); });
  CHECK(torch::equal(parts[1], size * (values + 1000)));
  all.all([&](auto& comm) { return comm.broadcast(of(own, comm), 2); });
  CHECK(torch::equal(own[0], values + 2000));
  all.all([&](auto& comm) { return comm.reduce(of(own, comm), 0, colls::average{}); });
  CHECK(torch::equal(own[0], values + 2000));
  all.all([&](auto& comm) { return comm.scan(of(own, comm)); });
  CHECK(torch::equal(own[2], 3 * (values + 2000)));

  auto send = all[0].send(own[0], 1);
  auto recv = all[1].recv(parts[1], 0);
  all.wait(send);
  CHECK(all.wait(recv).count == 600);
  CHECK(torch::equal(parts[1], own[0]));
}

TEST_CASE("a tensor is reduced by one line") {
  colls::inproc::run(3, [](colls::inproc::communicator& world) -> colls::task<> {
    Tensor tensor = torch::ones({4, 4});
    co_await world.all_reduce(tensor);
    Tensor column = tensor.select(1, 2);
    co_await world.broadcast(column, 0);
    CHECK(torch::equal(tensor, 3 * torch::ones({4, 4})));
  });
}

TEST_CASE("a list of tensors is reduced by one call") {
  communicators all(2);
  std::vector<std::vector<Tensor>> lists;
  for (int rank = 0; rank < 2; ++rank) {
    lists.push_back({torch::ones({4, 3}).t(), torch::full({2}, 2.0F), torch::ones({0})});
  }
  all.all([&](auto& comm) { return comm.all_reduce(lists[index(comm.rank())]); });
  for (const std::vector<Tensor>& list : lists) {
    CHECK(torch::equal(list[0], torch::full({3, 4}, 2.0F)));
    CHECK(torch::equal(list[1], torch::full({2}, 4.0F)));
  }
  lists[0][1] = torch::ones({2}, torch::kFloat64);
  auto mixed = all[0].all_reduce(lists[0]);
  CHECK(says(failure_of(all, mixed), "the same element type"));
  all.check_good();
}

TEST_CASE("tensors that no call can use are refused on their rank") {
  communicators all(2);
  const auto refused = [&](const Tensor& tensor, const char* words) {
    auto call = all[0].all_reduce(tensor);
    const colls::failure why = failure_of(all, call);
    CHECK(why.code == errc::invalid_argument);
    CAPTURE(std::string(why.detail));
    CHECK(says(why, words));
  };
  refused(Tensor(), "undefined");
  refused(torch::ones({3}, torch::kMeta), "not in host memory");
  refused(torch::ones({3}).to_sparse(), "sparse");
  refused(torch::ones({3}, torch::kComplexFloat).conj(), "conjugated");
  refused(torch::ones({3}).expand({2, 3}), "share memory");
  refused(torch::quantize_per_tensor(torch::ones({3}), 1, 0, torch::kQInt8), "type of this tensor");
  refused(torch::ones({1, 1, 1, 1, 1, 1, 1, 1, 1}), "8 dimensions");
  const Tensor doubles = torch::ones({3}, torch::kFloat64);
  const Tensor floats = torch::ones({3});
  auto differ = all[0].all_reduce(doubles, floats);
  CHECK(says(failure_of(all, differ), "the same element type"));
  auto bits = all[0].all_reduce(floats, colls::bit_xor{});
  CHECK(says(failure_of(all, bits), "cannot reduce elements of this type"));
  all.check_good();
  // A tensor that is only read may have elements that share memory.
  const Tensor row = torch::ones({3}).expand({2, 3});
  std::vector<Tensor> sums{torch::zeros({2, 3}), torch::zeros({2, 3})};
  all.all([&](auto& comm) { return comm.all_reduce(row, sums[index(comm.rank())]); });
  CHECK(torch::equal(sums[1], 2 * torch::ones({2, 3})));
}

TEST_CASE("tensors of another type are a mismatch") {
  communicators all(2);
  const Tensor doubles = torch::ones({3}, torch::kFloat64);
  const Tensor integers = torch::ones({3}, torch::kInt64);
  auto first = all[0].broadcast(doubles, 0);
  auto second = all[1].broadcast(integers, 0);
  CHECK(failure_of(all, second).code == errc::mismatch);
  CHECK(failure_of(all, first).code == errc::mismatch);
}

}  // namespace
