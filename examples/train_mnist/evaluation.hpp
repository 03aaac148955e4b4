// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Compares the parameters of all ranks, and tests the network on all ranks.

#include "dataset.hpp"
#include "network.hpp"

#include <colls/coroutine/sync_wait.hpp>
#include <colls/world.hpp>

#include <algorithm>
#include <bit>
#include <stdexcept>

namespace mnist {

/// Returns a hash of all bits of the parameters. Throws unless they are equal on all ranks.
inline std::uint64_t common_hash(colls::world& world, const torch::nn::Module& net) {
  std::uint64_t hash = 0;
  for (const torch::Tensor& parameter : net.parameters()) {
    const float* const values = parameter.data_ptr<float>();
    for (std::int64_t i = 0; i < parameter.numel(); ++i) {
      hash = colls::mix(hash, std::bit_cast<std::uint32_t>(values[i]));
    }
  }
  std::uint64_t max_and_min[] = {hash, ~hash};  // the maximum of ~hash is ~ of the minimum
  colls::sync_wait(world, world.all_reduce(max_and_min, colls::maximum{}));
  if (max_and_min[0] != ~max_and_min[1]) throw std::runtime_error("the ranks' parameters differ");
  return hash;
}

/// Returns how many of the test samples the network classifies correctly. Each rank tests its part.
inline std::int64_t count_correct(colls::world& world, const dataset& data, network net) {
  constexpr std::size_t test_batch = 256;
  const torch::NoGradGuard no_grad;
  net->eval();
  const colls::partition parts(data.test.size(), world.size());
  auto left = std::span<const std::size_t>(data.test).subspan(parts.offset(world.rank()),
                                                              parts.count(world.rank()));
  std::int64_t correct[] = {0};
  while (!left.empty()) {
    const batch part = batch_of(data.all, left.first(std::min(left.size(), test_batch)));
    const torch::Tensor answers = net->forward(part.pictures).argmax(1);
    correct[0] += answers.eq(part.labels).sum().item<std::int64_t>();
    left = left.subspan(static_cast<std::size_t>(part.labels.size(0)));
  }
  colls::sync_wait(world, world.all_reduce(correct));
  return correct[0];
}

}  // namespace mnist
