// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the command line of train_mnist says.

#include <CLI/CLI.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace mnist {

struct settings {
  std::string images, labels, data;
  std::optional<std::size_t> holdout;
  std::size_t limit = 0;  // 0: all
  std::uint64_t epochs = 3;
  std::size_t batch = 64;
  double lr = 1e-3;
  std::uint64_t seed = 1;
  std::optional<double> dropout;
  std::size_t accumulate = 1;
  std::string checkpoint, log;
  bool resume = false;
  // For measurements.
  bool plain = false, hooks = false;
  std::string trace;

  std::string help;  // not empty: asked for
};

/// Throws std::runtime_error with one line about what cannot be.
inline settings parse(int argc, char** argv, int ranks) {
  settings want;
  CLI::App app{"Trains a small convolutional network on pictures of digits, on all ranks."};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto positive = [](const std::string& text) {
    return text.find_first_of("123456789") == text.npos || text[0] == '-' ? "has to be more than 0"
                                                                          : std::string();
  };
  CLI::Option* const images = app.add_option("--images", want.images, "pictures, IDX, raw or gzip");
  CLI::Option* const labels = app.add_option("--labels", want.labels, "their labels, IDX");
  images->needs(labels);
  labels->needs(images);
  app.add_option("--data", want.data,
                 "folder with MNIST's files: train-* if they are there, else t10k-*")
      ->excludes(images);
  app.add_option("--holdout", want.holdout,
                 "test on so many samples, chosen at random, that training leaves out (default: "
                 "t10k-* beside train-*, else a tenth)");
  app.add_option("--limit", want.limit, "train on so many samples only");
  app.add_option("--epochs", want.epochs, "how often each sample comes")->capture_default_str();
  app.add_option("--batch", want.batch, "samples of a step, all ranks' together")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--lr", want.lr, "Adam's learning rate")->capture_default_str()->check(positive);
  app.add_option("--seed", want.seed, "of weights, order, dropout and holdout")
      ->capture_default_str();
  app.add_option("--dropout", want.dropout, "probability (default: 0.25, then 0.5)")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--accumulate", want.accumulate,
                 "each rank computes its part of a batch in so many pieces")
      ->capture_default_str()
      ->check(positive);
  CLI::Option* const checkpoint =
      app.add_option("--checkpoint", want.checkpoint, "write the state here, again and again");
  app.add_flag("--resume", want.resume, "go on from the checkpoint")->needs(checkpoint);
  app.add_option("--log", want.log, "write a JSON line a step here: step, loss of the whole batch");
  app.add_flag("--plain", want.plain, "one process without colls in its loop, to compare")
      ->group("Measuring");
  app.add_flag("--hooks", want.hooks, "no thread: gradients travel when backward looks after them")
      ->group("Measuring");
  app.add_option("--trace", want.trace, "write a JSON line a step here: when gradients travelled")
      ->group("Measuring");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    want.help = app.help();
    return want;
  } catch (const CLI::ParseError& wrong) {
    throw std::runtime_error(wrong.what());
  }
  if (want.batch < static_cast<std::size_t>(ranks)) {
    throw std::runtime_error("--batch " + std::to_string(want.batch) + " is smaller than the " +
                             std::to_string(ranks) + " ranks that share it");
  }
  if (want.plain && ranks > 1) {
    throw std::runtime_error("--plain is for one process, not " + std::to_string(ranks));
  }
  return want;
}

}  // namespace mnist
