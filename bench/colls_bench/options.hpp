// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The options of a measurement.

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
  std::vector<std::uint64_t> listed_bytes;  // empty: from the first to the last
  std::uint64_t first_bytes = 8;
  std::uint64_t last_bytes = 16 << 20;
  double factor = 4;
  int iterations = 0;  // 0: by size
  int warmup = -1;     // -1: a tenth of the iterations
  double seconds = 0;  // limit for one size; 0: none
  int batch = 1;
  bool timed_barrier = false;  // the time of a call includes the barrier before it
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
  /// The listed sizes, or those from the first to the last, rounded down to multiples of `unit`. A
  /// size is 0 only if the user passes 0.
  std::vector<std::uint64_t> sizes(std::uint64_t unit) const {
    const std::string smallest = "the smallest size above 0 is " + std::to_string(unit) + " B here";
    std::vector<std::uint64_t> all;
    for (const std::uint64_t bytes : listed_bytes) {
      if (bytes != 0 && bytes < unit) throw std::invalid_argument("--sizes: " + smallest);
      all.push_back(bytes / unit * unit);
    }
    if (!all.empty()) return all;
    const auto last = static_cast<double>(last_bytes);
    for (double bytes = static_cast<double>(first_bytes); bytes <= last; bytes *= factor) {
      const auto rounded = static_cast<std::uint64_t>(bytes) / unit * unit;
      const bool repeats = !all.empty() && all.back() == rounded;
      if ((rounded != 0 || bytes == 0) && !repeats) all.push_back(rounded);
      if (bytes == 0) break;
    }
    if (all.empty()) throw std::invalid_argument("no size from --begin to --end: " + smallest);
    return all;
  }
  bool on_device() const {
    return memory == "device" || transport == "cuda_ipc" || transport == "nccl";
  }
  colls::algorithm pinned() const {
    if (library != "colls") return colls::algorithm::automatic;
    if (const auto known = colls::algorithm_of(algorithm)) return *known;
    throw std::invalid_argument("no algorithm is named " + algorithm);
  }
};

}  // namespace bench
