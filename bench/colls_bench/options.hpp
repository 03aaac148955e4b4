// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What is measured, and how.

#include <colls/base/algorithm_names.hpp>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace bench {

struct options {
  std::string library = "colls";
  std::string collective;
  std::string transport = "tcp";
  std::string memory = "host";
  int ranks = 2;
  std::string algorithm = "auto";
  std::vector<std::uint64_t> listed_bytes;  // none: from the first to the last
  std::uint64_t first_bytes = 8;
  std::uint64_t last_bytes = 16 << 20;
  double factor = 4;
  int iterations = 0;  // 0: by size
  int warmup = -1;     // -1: a tenth of the iterations
  double seconds = 0;  // most for one size; 0: no limit
  int batch = 1;
  bool turns = false;  // the barrier before a call counts
  std::string dtype = "float";
  std::string op = "plus";
  int root = 0;
  bool registered = false;
  bool in_place = false;
  bool checksum = false;
  std::string congestion;
  std::string json;

  int iterations_for(std::uint64_t bytes) const {
    if (iterations > 0) return iterations;
    return bytes <= 64 * 1024 ? 2000 : bytes <= 1024 * 1024 ? 200 : 20;
  }
  int warmup_for(std::uint64_t bytes) const {
    return warmup >= 0 ? warmup : (iterations_for(bytes) + 9) / 10;
  }
  /// The sizes listed, or from the first to the last, as whole multiples of `unit`: 0 only if it
  /// was asked for.
  std::vector<std::uint64_t> sizes(std::uint64_t unit) const {
    const std::string least = "the least above 0 is " + std::to_string(unit) + " B here";
    std::vector<std::uint64_t> all;
    for (const std::uint64_t bytes : listed_bytes) {
      if (bytes != 0 && bytes < unit) throw std::invalid_argument("--sizes: " + least);
      all.push_back(bytes / unit * unit);
    }
    if (!all.empty()) return all;
    const auto last = static_cast<double>(last_bytes);
    for (double bytes = static_cast<double>(first_bytes); bytes <= last; bytes *= factor) {
      const auto whole = static_cast<std::uint64_t>(bytes) / unit * unit;
      const bool repeats = !all.empty() && all.back() == whole;
      if ((whole != 0 || bytes == 0) && !repeats) all.push_back(whole);
      if (bytes == 0) break;
    }
    if (all.empty()) throw std::invalid_argument("no size from --begin to --end: " + least);
    return all;
  }
  bool on_device() const {
    return memory == "device" || transport == "cuda_ipc" || transport == "nccl";
  }
  colls::algorithm pinned() const {
    if (library != "colls") return colls::algorithm::automatic;
    if (const auto how = colls::algorithm_of(algorithm)) return *how;
    throw std::invalid_argument("no algorithm is named " + algorithm);
  }
};

}  // namespace bench
