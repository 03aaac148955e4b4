// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The command line of colls-bench.

#include "options.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>

namespace bench {

/// Prints an error in the command line in one line, or the help if it was requested. Returns the
/// exit status.
inline int report_parse_error(const CLI::App& app, const char* program,
                              const CLI::ParseError& error) {
  if (error.get_exit_code() == 0) return app.exit(error);
  std::fprintf(stderr, "%s: %s\n", program, error.what());
  return 2;
}

inline std::vector<std::string> collectives() {
  std::vector<std::string> names;
  for (int i = 1; i <= static_cast<int>(colls::collective::exscan); ++i) {
    names.push_back(name(static_cast<colls::collective>(i)));
  }
  return names;
}

/// Declares the options for sizes, iterations and the output file.
inline void declare_sizes(CLI::App& app, options& opts) {
  app.add_option("-b,--begin", opts.first_bytes, "Bytes of the whole vector: 8, 64K, 16M")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("-e,--end", opts.last_bytes)
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option("-f,--factor", opts.factor, "Ratio of one size to the one before")
      ->capture_default_str();
  app.add_option("--sizes", opts.listed_bytes, "Only these sizes: 8,4K,16M")
      ->transform(CLI::AsSizeValue(false))
      ->delimiter(',');
  app.add_option("-n,--iters", opts.iterations, "0: by size")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  app.add_option("-w,--warmup", opts.warmup, "-1: a tenth of the iterations; 0: none")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  app.add_option("--seconds", opts.seconds, "Fewer iterations if a size takes longer; 0: no limit")
      ->capture_default_str();
  app.add_option("--batch", opts.batch, "Consecutive calls that are timed as one, after a barrier")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_flag("--turns", opts.timed_barrier, "Include the barrier before a call in its time");
  app.add_option("--congestion", opts.congestion, "tcp: reno, cubic, ...; default: the system's");
  app.add_option("--json", opts.json, "Append one line for each size to this file");
  app.callback([&opts] {  // here, because a NaN passes CLI::Range
    if (!(opts.factor > 1)) throw CLI::ValidationError("--factor", "it is not above 1");
    if (!(opts.seconds >= 0)) throw CLI::ValidationError("--seconds", "it is not 0 or above");
    if (opts.first_bytes > opts.last_bytes) {
      throw CLI::ValidationError("--begin", std::to_string(opts.first_bytes) + " is above --end, " +
                                                std::to_string(opts.last_bytes));
    }
  });
}

inline void declare(CLI::App& app, options& opts) {
  app.add_option("collective", opts.collective, "all_reduce, broadcast, barrier, ...")
      ->check(CLI::IsMember(collectives()))
      ->required();
  app.add_option("--transport", opts.transport)
      ->check(
          CLI::IsMember({"inproc", "shm", "tcp", "hybrid", "ucx", "ucx_only", "cuda_ipc", "nccl"}))
      ->capture_default_str();
  app.add_option("--memory", opts.memory, "device: staged, except with cuda_ipc and nccl")
      ->check(CLI::IsMember({"host", "device"}))
      ->capture_default_str();
  app.add_option("--ranks", opts.ranks, "Ranks to start; ignored if started by a launcher")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--algorithm", opts.algorithm, "A name, or auto")->capture_default_str();
  declare_sizes(app, opts);
  app.add_option("-d,--dtype", opts.dtype)
      ->check(CLI::IsMember({"float", "double", "int32", "bfloat16"}))
      ->capture_default_str();
  app.add_option("-o,--op", opts.op)
      ->check(CLI::IsMember({"plus", "maximum"}))
      ->capture_default_str();
  app.add_option("-r,--root", opts.root)->capture_default_str();
  app.add_option("--registered", opts.registered, "1: buffers in memory that peers can access")
      ->capture_default_str();
  app.add_option("--in-place", opts.in_place)->capture_default_str();
  app.add_option("--checksum", opts.checksum, "1: shm and tcp with checksums of messages")
      ->capture_default_str();
}

}  // namespace bench
