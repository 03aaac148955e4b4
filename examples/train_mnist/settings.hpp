// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The command line of train_mnist.

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
  // For benchmarks.
  bool plain = false, hooks = false;
  std::string trace;

  std::string help;  // the text, if the user asked for it
};

/// Throws std::runtime_error with a message of one line if the arguments are invalid.
inline settings parse(int argc, char** argv, int ranks) {
  settings result;
  CLI::App app{"Trains a small convolutional network on pictures of digits, on all ranks."};
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto positive = [](const std::string& text) {
    return text.find_first_of("123456789") == text.npos || text[0] == '-' ? "must be more than 0"
                                                                          : std::string();
  };
  CLI::Option* const images =
      app.add_option("--images", result.images, "pictures, IDX, raw or gzip");
  CLI::Option* const labels = app.add_option("--labels", result.labels, "their labels, IDX");
  images->needs(labels);
  labels->needs(images);
  app.add_option("--data", result.data,
                 "folder with MNIST's files: train-* if they are there, else t10k-*")
      ->excludes(images);
  app.add_option(
      "--holdout", result.holdout,
      "test with this number of randomly chosen samples, which are not used for training "
      "(default: t10k-* if train-* is there too, else a tenth)");
  app.add_option("--limit", result.limit, "train on at most this number of samples");
  app.add_option("--epochs", result.epochs, "number of passes over the training samples")
      ->capture_default_str();
  app.add_option("--batch", result.batch, "samples of a step on all ranks together")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--lr", result.lr, "Adam's learning rate")->capture_default_str()->check(positive);
  app.add_option("--seed", result.seed, "seed of weights, order, dropout and holdout")
      ->capture_default_str();
  app.add_option("--dropout", result.dropout, "probability (default: 0.25, then 0.5)")
      ->check(CLI::Range(0.0, 0.99));
  app.add_option("--accumulate", result.accumulate,
                 "number of pieces in which each rank computes its part of a batch")
      ->capture_default_str()
      ->check(positive);
  CLI::Option* const checkpoint = app.add_option("--checkpoint", result.checkpoint,
                                                 "file to which the state is written regularly");
  app.add_flag("--resume", result.resume, "continue from the checkpoint")->needs(checkpoint);
  app.add_option("--log", result.log,
                 "file for one JSON line a step: step, loss of the whole batch");
  app.add_flag("--plain", result.plain, "train one process without colls, for comparison")
      ->group("Measuring");
  app.add_flag("--hooks", result.hooks,
               "without a driver thread: hooks in backward drive the all_reduces")
      ->group("Measuring");
  app.add_option("--trace", result.trace, "file for one JSON line a step: times of its all_reduces")
      ->group("Measuring");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    result.help = app.help();
    return result;
  } catch (const CLI::ParseError& wrong) {
    throw std::runtime_error(wrong.what());
  }
  if (result.batch < static_cast<std::size_t>(ranks)) {
    throw std::runtime_error("--batch " + std::to_string(result.batch) + " is smaller than the " +
                             std::to_string(ranks) + " ranks that share it");
  }
  if (result.plain && ranks > 1) {
    throw std::runtime_error("--plain is for one process, not " + std::to_string(ranks));
  }
  return result;
}

}  // namespace mnist
