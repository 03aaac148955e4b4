// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The ranks as processes: those of a launcher, or our own.

#include "measure.hpp"
#include "on_devices.hpp"
#include "processes.hpp"

#include <colls/config.hpp>
#include <colls/driver/socket.hpp>
#include <colls/run.hpp>

#include <cstdio>
#include <stdexcept>

namespace bench {

inline int in_a_world(const options& how) {
  const auto rank_main = [&](colls::config place) {
    place.congestion = how.congestion;
    place.checksum = how.checksum;
    place.transport =
        how.transport == "cuda_ipc" || how.transport == "nccl" ? "hybrid" : how.transport;
    if (how.on_device()) {
      return colls::run([&](colls::world& world) { return measure_on_devices(world, how); }, place);
    }
    const auto on_host = [&](colls::world& world) -> colls::task<int> {
      int status = 0;
      try {
        const auto work = make_workload(world, how);
        co_await measure(*work, world, how);
      } catch (const std::invalid_argument& wrong) {  // on all ranks
        if (world.rank() == 0) std::fprintf(stderr, "colls-bench: %s\n", wrong.what());
        status = 2;
      }
      co_return status;
    };
    return colls::run(on_host, place);
  };
  const auto refused =
      how.congestion.empty() ? std::error_code() : colls::detail::try_congestion(how.congestion);
  if (refused) {
    throw std::invalid_argument("--congestion " + how.congestion + ": " + refused.message());
  }
  const colls::config launched = colls::environment();
  if (!(launched.source == "no launcher")) return rank_main(launched);
  const meeting_folder folder;
  const auto started = [&](int rank) {
    colls::config place;
    place.rank = rank;
    place.size = how.ranks;
    place.address = "file://" + folder.file();
    return rank_main(place);
  };
  // The threads of NCCL and of the driver need cores on which no rank spins.
  return in_processes(how.ranks, started, !how.on_device());
}

}  // namespace bench
