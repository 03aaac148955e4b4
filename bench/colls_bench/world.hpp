// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Measures ranks that are processes: those of a launcher, or processes that the program starts.

#include "measure.hpp"
#include "on_devices.hpp"
#include "processes.hpp"

#include <colls/config.hpp>
#include <colls/driver/socket.hpp>
#include <colls/run.hpp>

#include <cstdio>
#include <stdexcept>

namespace bench {

inline int run_in_world(const options& opts) {
  const auto rank_main = [&](colls::config settings) {
    settings.congestion = opts.congestion;
    settings.checksum = opts.checksum;
    settings.transport =
        opts.transport == "cuda_ipc" || opts.transport == "nccl" ? "hybrid" : opts.transport;
    if (opts.on_device()) {
      return colls::run([&](colls::world& world) { return measure_on_devices(world, opts); },
                        settings);
    }
    const auto on_host = [&](colls::world& world) -> colls::task<int> {
      int status = 0;
      try {
        const auto work = make_workload(world, opts);
        co_await measure(*work, world, opts);
      } catch (const std::invalid_argument& wrong) {  // all ranks throw the same
        if (world.rank() == 0) std::fprintf(stderr, "colls-bench: %s\n", wrong.what());
        status = 2;
      }
      co_return status;
    };
    return colls::run(on_host, settings);
  };
  const auto rejected =
      opts.congestion.empty() ? std::error_code() : colls::detail::try_congestion(opts.congestion);
  if (rejected) {
    throw std::invalid_argument("--congestion " + opts.congestion + ": " + rejected.message());
  }
  const colls::config launched = colls::environment();
  if (!(launched.source == "no launcher")) return rank_main(launched);
  const temporary_folder folder;
  const auto started = [&](int rank) {
    colls::config settings;
    settings.rank = rank;
    settings.size = opts.ranks;
    settings.address = "file://" + folder.file();
    return rank_main(settings);
  };
  // The threads of NCCL and of the CUDA driver need cores on which no rank spins.
  return run_in_processes(opts.ranks, started, !opts.on_device());
}

}  // namespace bench
