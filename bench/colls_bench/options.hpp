// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The command line of colls-bench.

#include <CLI/CLI.hpp>

#include <colls/fwd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace bench {

struct options {
  std::string library = "colls";
  std::string collective;
  std::string transport = "tcp";
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
  std::string dtype = "float";
  std::string op = "plus";
  int root = 0;
  bool registered = false;
  bool in_place = false;
  std::string congestion;
  std::string json;

  int iterations_for(std::uint64_t bytes) const {
    if (iterations > 0) return iterations;
    return bytes <= 64 * 1024 ? 2000 : bytes <= 1024 * 1024 ? 200 : 20;
  }
  int warmup_for(std::uint64_t bytes) const {
    return warmup >= 0 ? warmup : (iterations_for(bytes) + 9) / 10;
  }
  /// The sizes listed, or from the first to the last, as whole multiples of `unit`.
  std::vector<std::uint64_t> sizes(std::uint64_t unit) const {
    std::vector<std::uint64_t> all;
    for (const std::uint64_t bytes : listed_bytes) all.push_back(bytes / unit * unit);
    if (!all.empty()) return all;
    for (double bytes = static_cast<double>(first_bytes);; bytes *= factor) {
      const auto whole = static_cast<std::uint64_t>(bytes) / unit * unit;
      if (whole > last_bytes) break;
      if (all.empty() || all.back() != whole) all.push_back(whole);
      if (factor <= 1 || bytes == 0) break;
    }
    return all;
  }
  colls::algorithm pinned() const {
    if (library != "colls") return colls::algorithm::automatic;
    for (int i = 0; i < 256; ++i) {
      const auto how = static_cast<colls::algorithm>(i);
      if (name(how) == algorithm) return how;
    }
    throw CLI::ValidationError("--algorithm", "no algorithm is named " + algorithm);
  }
};

/// Sizes, iterations, what they are written to.
inline void declare_sizes(CLI::App& app, options& given) {
  app.add_option("-b,--begin", given.first_bytes, "Bytes of the whole vector: 8, 64K, 16M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("-e,--end", given.last_bytes)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("-f,--factor", given.factor, "From one size to the next")->capture_default_str();
  app.add_option("--sizes", given.listed_bytes, "These and no others: 8,4K,16M")
      ->transform(CLI::AsSizeValue(false))
      ->delimiter(',');
  app.add_option("-n,--iters", given.iterations, "0: by size")->capture_default_str();
  app.add_option("-w,--warmup", given.warmup, "-1: a tenth of the iterations")
      ->capture_default_str();
  app.add_option("--seconds", given.seconds, "Fewer iterations where a size takes longer; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--batch", given.batch, "Calls in a row that are timed as one, after a barrier")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("--congestion", given.congestion, "tcp: reno, cubic, ...; else the system's");
  app.add_option("--json", given.json, "One line for each size is added to this file");
}

inline void declare(CLI::App& app, options& given) {
  app.add_option("collective", given.collective, "all_reduce, broadcast, barrier, ...")->required();
  app.add_option("--transport", given.transport)
      ->check(CLI::IsMember({"inproc", "shm", "tcp", "hybrid"}))
      ->capture_default_str();
  app.add_option("--ranks", given.ranks, "How many it starts; a launcher's ranks are joined")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--algorithm", given.algorithm, "A name, or auto")->capture_default_str();
  declare_sizes(app, given);
  app.add_option("-d,--dtype", given.dtype)
      ->check(CLI::IsMember({"float", "double", "int32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("-o,--op", given.op)
      ->check(CLI::IsMember({"plus", "maximum"}))
      ->capture_default_str();
  app.add_option("-r,--root", given.root)->capture_default_str();
  app.add_option("--registered", given.registered, "1: in memory that peers may work in")
      ->capture_default_str();
  app.add_option("--in-place", given.in_place)->capture_default_str();
}

}  // namespace bench
