// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Selects the digits for training and those for tests, from files or drawn by the program.

#include "drawn_digits.hpp"
#include "idx.hpp"
#include "settings.hpp"

#include <unistd.h>

namespace mnist {

struct dataset {
  digits all;
  std::vector<std::size_t> training, test;  // indices in `all`
  std::string origin;                       // where the digits are from, for output
};

namespace detail {

/// The path of the file of that name, compressed or not; empty: there is none.
inline std::string find(const std::string& folder, const std::string& name) {
  for (const std::string& path : {folder + "/" + name, folder + "/" + name + ".gz"}) {
    if (::access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

/// Reads the set `prefix`, train or t10k; nullopt if there are no pictures of that name.
inline std::optional<digits> read_set(const std::string& folder, const std::string& prefix) {
  const std::string images = find(folder, prefix + "-images-idx3-ubyte");
  if (images.empty()) return {};
  const std::string name = prefix + "-labels-idx1-ubyte";
  const std::string labels = find(folder, name);
  if (labels.empty()) throw std::runtime_error(folder + ": no " + name + " beside " + images);
  return read_idx(images, labels);
}

inline constexpr std::uint64_t holdout_stream = UINT64_MAX;  // gives an order that no epoch has
inline constexpr std::size_t drawn_pictures = 10'000;

}  // namespace detail

/// Returns the same data set on every rank that reads the same files. Throws an error of one line
/// that names the file.
inline dataset load(const settings& opts) {
  dataset result;
  std::size_t own_test = 0;  // samples at the end of `all` that are for tests
  if (!opts.images.empty()) {
    result.all = read_idx(opts.images, opts.labels);
    result.origin = opts.images;
  } else if (!opts.data.empty()) {
    auto train = detail::read_set(opts.data, "train");
    auto t10k = detail::read_set(opts.data, "t10k");
    if (!train && !t10k) {
      throw std::runtime_error(opts.data +
                               ": no train-images-idx3-ubyte or t10k-images-idx3-ubyte, "
                               "compressed or not");
    }
    result.origin = opts.data;
    result.all = std::move(train ? *train : *t10k);
    if (train && t10k && !opts.holdout) {
      own_test = t10k->size();
      result.all.pixels.insert(result.all.pixels.end(), t10k->pixels.begin(), t10k->pixels.end());
      result.all.labels.insert(result.all.labels.end(), t10k->labels.begin(), t10k->labels.end());
    }
  } else {
    result.all = draw_digits(detail::drawn_pictures, opts.seed);
    result.origin = "drawn by this program (--data DIR takes MNIST's)";
  }

  const std::size_t usable = result.all.size() - own_test;
  const std::size_t holdout = own_test != 0 ? 0 : opts.holdout.value_or(usable / 10);
  if (holdout >= usable) {
    throw std::runtime_error("--holdout " + std::to_string(holdout) + " of " +
                             std::to_string(usable) + " samples leaves none to train on");
  }
  const std::vector<std::size_t> order =
      colls::ddp::shuffled(usable, opts.seed, detail::holdout_stream);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(holdout);
  result.test.assign(order.begin(), middle);
  result.training.assign(middle, order.end());
  for (std::size_t i = usable; i < result.all.size(); ++i) result.test.push_back(i);
  if (opts.limit != 0 && opts.limit < result.training.size()) result.training.resize(opts.limit);
  if (result.test.empty()) result.test = result.training;
  return result;
}

}  // namespace mnist
