// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The network of PyTorch's MNIST example, and the conversion of digits to its input.

#include "digits.hpp"
#include "layer_table.hpp"

#include <torch/torch.h>

#include <array>

namespace mnist {

struct network_impl : torch::nn::Module {
  torch::nn::Conv2d conv1{torch::nn::Conv2dOptions(1, 32, 3)};
  torch::nn::Conv2d conv2{torch::nn::Conv2dOptions(32, 64, 3)};
  torch::nn::Dropout dropout1, dropout2;
  torch::nn::Linear fc1{9216, 128}, fc2{128, 10};

  network_impl(double first, double second) : dropout1(first), dropout2(second) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("dropout1", dropout1);
    register_module("dropout2", dropout2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }

  /// Logarithms of the probabilities of the ten digits.
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(conv1(x));
    x = torch::relu(conv2(x));
    x = dropout1(torch::max_pool2d(x, 2));
    x = torch::relu(fc1(torch::flatten(x, 1)));
    return torch::log_softmax(fc2(dropout2(x)), 1);
  }
};
using network = torch::nn::ModuleHolder<network_impl>;

struct batch {
  torch::Tensor pictures, labels;
};

/// Makes a batch of the samples, normalised as usual for MNIST.
inline batch batch_of(const digits& source, std::span<const std::size_t> samples) {
  static const auto value = [] {
    std::array<float, 256> all{};
    for (std::size_t ink = 0; ink < all.size(); ++ink) {
      all[ink] = (static_cast<float>(ink) / 255 - 0.1307f) / 0.3081f;
    }
    return all;
  }();
  const auto count = static_cast<std::int64_t>(samples.size());
  batch result{torch::empty({count, 1, side, side}), torch::empty({count}, torch::kInt64)};
  float* pixel = result.pictures.data_ptr<float>();
  std::int64_t* label = result.labels.data_ptr<std::int64_t>();
  for (const std::size_t sample : samples) {
    for (const std::uint8_t ink : source.picture(sample)) *pixel++ = value[ink];
    *label++ = source.labels[sample];
  }
  return result;
}

inline std::string table_of(const torch::nn::Module& net) {
  std::vector<layer> layers;
  for (const auto& child : net.named_children()) {
    std::int64_t count = 0;
    for (const torch::Tensor& parameter : child.value()->parameters()) count += parameter.numel();
    std::string type = child.value()->name();  // torch::nn::Conv2dImpl
    type = type.substr(type.rfind(':') + 1);
    layers.push_back({child.key(), type.substr(0, type.rfind("Impl")), count});
  }
  std::int64_t trainable = 0, frozen = 0, bytes = 0;
  for (const torch::Tensor& parameter : net.parameters()) {
    (parameter.requires_grad() ? trainable : frozen) += parameter.numel();
    bytes += static_cast<std::int64_t>(parameter.nbytes());
  }
  return layer_table(layers, trainable, frozen, bytes);
}

}  // namespace mnist
