// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Writes the times of the parts of each step, one JSON line a step, for bench/timeline.py.

#include <colls/ddp/options.hpp>

#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <string>
#include <vector>

namespace mnist {

struct trace {
  colls::ddp::timeline gradients;
  colls::time_point forward = 0, backward = 0, optimizer = 0, end = 0;
  std::vector<std::string> parameters;
  std::ofstream out;

  static colls::time_point now() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }

  /// Writes one line of times in microseconds since the step began.
  void write() {
    if (!out.is_open()) return;
    const auto since = [this](colls::time_point time) {
      return static_cast<double>(time - forward) * 1e-3;
    };
    out << fmt::format("{{\"backward\":{},\"optimizer\":{},\"end\":{},\"ready\":{{",
                       since(backward), since(optimizer), since(end));
    for (std::size_t i = 0; i < gradients.ready.size(); ++i) {
      out << fmt::format("{}\"{}\":{}", i == 0 ? "" : ",", parameters[i],
                         since(gradients.ready[i]));
    }
    out << "},\"buckets\":[";
    for (std::size_t i = 0; i < gradients.buckets.size(); ++i) {
      const auto& bucket = gradients.buckets[i];
      out << fmt::format("{}{{\"begin\":{},\"end\":{},\"elements\":{}}}", i == 0 ? "" : ",",
                         since(bucket.begin), since(bucket.end), bucket.elements);
    }
    out << "]}" << std::endl;
  }
};

}  // namespace mnist
