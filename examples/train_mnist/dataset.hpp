// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The digits to train on and those to test with: from files, or drawn.

#include "drawn_digits.hpp"
#include "idx.hpp"
#include "settings.hpp"

#include <unistd.h>

namespace mnist {

struct dataset {
  digits all;
  std::vector<std::size_t> training, test;  // places in `all`
  std::string origin;                       // for people
};

namespace detail {

/// The file of that name, compressed or not; empty: there is none.
inline std::string find(const std::string& folder, const std::string& name) {
  for (const std::string& path : {folder + "/" + name, folder + "/" + name + ".gz"}) {
    if (::access(path.c_str(), F_OK) == 0) return path;
  }
  return {};
}

/// `which` is train or t10k; nothing if no pictures of that name are there.
inline std::optional<digits> read_set(const std::string& folder, const std::string& which) {
  const std::string images = find(folder, which + "-images-idx3-ubyte");
  if (images.empty()) return {};
  const std::string name = which + "-labels-idx1-ubyte";
  const std::string labels = find(folder, name);
  if (labels.empty()) throw std::runtime_error(folder + ": no " + name + " beside " + images);
  return read_idx(images, labels);
}

inline constexpr std::uint64_t holdout_stream = UINT64_MAX;  // an order that no epoch has
inline constexpr std::size_t drawn_pictures = 10'000;

}  // namespace detail

/// The same on every rank that sees the same files. Throws one line that names the file.
inline dataset load(const settings& want) {
  dataset made;
  std::size_t own_test = 0;  // how many at the end of `all` are for tests
  if (!want.images.empty()) {
    made.all = read_idx(want.images, want.labels);
    made.origin = want.images;
  } else if (!want.data.empty()) {
    auto train = detail::read_set(want.data, "train");
    auto t10k = detail::read_set(want.data, "t10k");
    if (!train && !t10k) {
      throw std::runtime_error(want.data +
                               ": no train-images-idx3-ubyte or t10k-images-idx3-ubyte, "
                               "compressed or not");
    }
    made.origin = want.data;
    made.all = std::move(train ? *train : *t10k);
    if (train && t10k && !want.holdout) {
      own_test = t10k->size();
      made.all.pixels.insert(made.all.pixels.end(), t10k->pixels.begin(), t10k->pixels.end());
      made.all.labels.insert(made.all.labels.end(), t10k->labels.begin(), t10k->labels.end());
    }
  } else {
    made.all = draw_digits(detail::drawn_pictures, want.seed);
    made.origin = "drawn by this program (--data DIR takes MNIST's)";
  }

  const std::size_t usable = made.all.size() - own_test;
  const std::size_t holdout = own_test != 0 ? 0 : want.holdout.value_or(usable / 10);
  if (holdout >= usable) {
    throw std::runtime_error("--holdout " + std::to_string(holdout) + " of " +
                             std::to_string(usable) + " samples leaves none to train on");
  }
  const std::vector<std::size_t> order =
      colls::ddp::shuffled(usable, want.seed, detail::holdout_stream);
  const auto middle = order.begin() + static_cast<std::ptrdiff_t>(holdout);
  made.test.assign(order.begin(), middle);
  made.training.assign(middle, order.end());
  for (std::size_t i = usable; i < made.all.size(); ++i) made.test.push_back(i);
  if (want.limit != 0 && want.limit < made.training.size()) made.training.resize(want.limit);
  if (made.test.empty()) made.test = made.training;
  return made;
}

}  // namespace mnist
