// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The command line of colls-bench.

#include "options.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace bench {

/// The exit status of a command line that is wrong, which is said in one line, or asks for help.
inline int refused(const CLI::App& app, const char* program, const CLI::ParseError& wrong) {
  if (wrong.get_exit_code() == 0) return app.exit(wrong);
  std::fprintf(stderr, "%s: %s\n", program, wrong.what());
  return 2;
}

inline std::vector<std::string> collectives() {
  std::vector<std::string> names;
  for (int i = 1; i <= static_cast<int>(colls::collective::exscan); ++i) {
    names.push_back(name(static_cast<colls::collective>(i)));
  }
  return names;
}

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
  app.add_option("-n,--iters", given.iterations, "0: by size")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-w,--warmup", given.warmup, "-1: a tenth of the iterations; 0: none")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  app.add_option("--seconds", given.seconds, "Fewer iterations where a size takes longer; 0: never")
      ->capture_default_str();
  app.add_option("--batch", given.batch, "Calls in a row that are timed as one, after a barrier")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--turns", given.turns, "The barrier before a call is timed with it");
  app.add_option("--congestion", given.congestion, "tcp: reno, cubic, ...; else the system's");
  app.add_option("--json", given.json, "One line for each size is added to this file");
  app.callback([&given] {  // a NaN passes CLI::Range
    if (!(given.factor > 1)) throw CLI::ValidationError("--factor", "it is not above 1");
    if (!(given.seconds >= 0)) throw CLI::ValidationError("--seconds", "it is not 0 or above");
    if (given.first_bytes > given.last_bytes) {
      throw CLI::ValidationError("--begin", std::to_string(given.first_bytes) +
                                                " is above --end, " +
                                                std::to_string(given.last_bytes));
    }
  });
}

inline void declare(CLI::App& app, options& given) {
  app.add_option("collective", given.collective, "all_reduce, broadcast, barrier, ...")
      ->check(CLI::IsMember(collectives()))
      ->required();
  app.add_option("--transport", given.transport)
      ->check(CLI::IsMember({"inproc", "shm", "tcp", "hybrid", "cuda_ipc", "nccl"}))
      ->capture_default_str();
  app.add_option("--memory", given.memory, "Of a device: staged, but for cuda_ipc and nccl")
      ->check(CLI::IsMember({"host", "device"}))
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
  app.add_option("--checksum", given.checksum, "1: shm and tcp with checksums of what travels")
      ->capture_default_str();
}

}  // namespace bench
