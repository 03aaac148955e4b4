// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Shows the progress of training: a live bar on a terminal, otherwise ten lines an epoch.

#include <fmt/format.h>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace mnist {

class progress {
 public:
  /// `done` is the number of steps of the epoch that have been made already.
  progress(std::uint64_t epoch, std::uint64_t epochs, std::uint64_t steps, std::uint64_t done)
      : epoch_(epoch), epochs_(epochs), steps_(steps), done_(done) {}

  /// Adds a step with its loss and its number of samples.
  void step(double loss, std::size_t samples) {
    samples_ += static_cast<double>(samples);
    sum_ += loss * static_cast<double>(samples);
    ++done_;
    const bool last = done_ == steps_;
    const auto now = clock::now();
    if (terminal_ ? last || now - shown_ > std::chrono::milliseconds(100)
                  : done_ * 10 / steps_ != (done_ - 1) * 10 / steps_) {
      shown_ = now;
      show(last ? sum_ / samples_ : loss, last);
    }
  }

 private:
  using clock = std::chrono::steady_clock;

  void show(double loss, bool last) const {
    constexpr std::size_t width = 24;
    const std::size_t filled = static_cast<std::size_t>(done_) * width / steps_;
    const std::string bar =
        terminal_ ? fmt::format("[{:-<{}}] ", std::string(filled, '='), width) : "";
    const double seconds = std::chrono::duration<double>(clock::now() - began_).count();
    fmt::print("{}epoch {}/{} {}step {}/{}  {} {:.4f}  {:.0f} samples/s{}", terminal_ ? "\r" : "",
               epoch_ + 1, epochs_, bar, done_, steps_, last ? "mean loss" : "loss", loss,
               samples_ / seconds, last || !terminal_ ? "\n" : "  ");
    std::fflush(stdout);
  }

  std::uint64_t epoch_, epochs_, steps_, done_;
  double samples_ = 0, sum_ = 0;
  clock::time_point began_ = clock::now(), shown_ = began_;
  const bool terminal_ = ::isatty(STDOUT_FILENO) != 0 || std::getenv("COLLS_TERMINAL") != nullptr;
};

}  // namespace mnist
