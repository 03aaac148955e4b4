// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// The algorithm that is chosen for a call beside all that could do it, on simulated networks. Costs
// are found out by `measure()`, on a world of the same ranks: tuning knows nothing of the simulator.
// One JSON line a point; bench/choices.py draws them.

#include "../tools/colls_sim/job.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <cstdio>
#include <limits>

namespace {

using colls::network_cost;
using colls::operation;
using colls::simulated_world;

struct network {
  const char* name;
  double latency_us;
  double overhead_us;
  double bandwidth;  // GB/s
  const char* topology;
};

constexpr network networks[] = {
    {"flat, 1 us, 12.5 GB/s", 1, 0.1, 12.5, "flat"},
    {"flat, 30 us, 1.25 GB/s", 30, 2, 1.25, "flat"},
    {"nodes of 8 that share a link, 5 us, 3 GB/s", 5, 0.3, 3, "nodes:8"},
    {"nodes of 4 that share a link, 10 us, 6 GB/s", 10, 1, 6, "nodes:4"},
};

struct world {
  world(int ranks, const simulated_world::settings& how) : net(ranks, how) {
    for (int rank = 0; rank < ranks; ++rank) comms.push_back(colls::simulated::join(net, rank));
  }

  /// All ranks call at once; the time from there to the end of the last.
  template <class Make>
  colls::simulated::ticks time_of(const Make& make) {
    struct ending : colls::completion {
      world* all = nullptr;
    };
    std::vector<ending> ends(comms.size());
    std::vector<operation<>> calls;
    const auto began = net.time();
    left = static_cast<int>(comms.size());
    for (auto& comm : comms) calls.push_back(make(comm));
    for (std::size_t i = 0; i < calls.size(); ++i) {
      ends[i].all = this;
      const auto end = [](colls::completion& self) noexcept {
        world& mine = *static_cast<ending&>(self).all;
        --mine.left;
        mine.ended = mine.net.time();
      };
      ends[i].become(end, colls::completion(nullptr, &net[static_cast<int>(i)].queue()));
      if (calls[i].start(ends[i])) end(ends[i]);
    }
    if (!net.run_until([&] { return left == 0; })) throw std::runtime_error("the ranks stand still");
    for (auto& call : calls) call.result();
    return ended - began;
  }

  simulated_world net;
  std::vector<sim::communicator> comms;
  int left = 0;
  colls::simulated::ticks ended = 0;
};

network_cost measured(int ranks, const simulated_world::settings& how) {
  world real(ranks, how);
  (void)real.time_of([](sim::communicator& comm) { return comm.measure(); });
  return real.comms.front().tuning().costs();
}

nlohmann::json point(const network& on, sim::options call, const network_cost& costs,
                     const simulated_world::settings& how) {
  world phantom(call.ranks, how);
  for (auto& comm : phantom.comms) comm.set_costs(costs);
  const auto told = phantom.comms.front().explain(call.what(), call.bytes.value_or(0));
  nlohmann::json times;
  double best = std::numeric_limits<double>::max();
  for (const auto& each : told.all) {
    call.algorithm = name(each.by.how);
    const auto job = sim::make_job(call);
    const auto took = phantom.time_of([&](sim::communicator& comm) { return job->start(comm); });
    times[call.algorithm] = static_cast<double>(took) * 1e-6;
    best = std::min(best, static_cast<double>(took) * 1e-6);
  }
  const std::string chosen = name(told.chosen.how);
  return {{"network", on.name},
          {"collective", call.collective},
          {"ranks", call.ranks},
          {"bytes", call.bytes.value_or(0)},
          {"chosen", chosen},
          {"ratio", times[chosen].get<double>() / best},
          {"times_us", times}};
}

}  // namespace

int main() {
  const bool progress = isatty(STDERR_FILENO) != 0;
  for (const network& on : networks) {
    for (const int ranks : {2, 3, 4, 7, 8, 16, 24, 48, 64}) {
      simulated_world::settings how;
      how.network.latency_us = on.latency_us;
      how.network.overhead_us = on.overhead_us;
      how.network.bandwidth = on.bandwidth;
      how.network.wiring = colls::simulated::topology::parse(on.topology);
      const network_cost costs = measured(ranks, how);
      how.phantom = true;
      for (const char* what : {"barrier", "broadcast", "all_reduce", "reduce", "reduce_scatter",
                               "all_gather", "gather", "scatter", "all_to_all", "scan"}) {
        if (progress) std::fprintf(stderr, "\r\033[K%s, %d ranks, %s", on.name, ranks, what);
        sim::options call;
        call.collective = what;
        call.ranks = ranks;
        call.payload = "phantom";
        call.network = how.network;
        const bool has_data = call.what() != colls::collective::barrier;
        const auto shares = static_cast<std::uint64_t>(ranks) * sizeof(float);
        for (std::uint64_t size = 8; size <= 256 << 20 && (has_data || size == 8); size *= 32) {
          // Equal blocks for all; the same vector for all collectives.
          if (has_data) call.bytes = std::max(size / shares, std::uint64_t{1}) * shares;
          std::printf("%s\n", point(on, call, costs, how).dump().c_str());
          std::fflush(stdout);
        }
      }
    }
  }
  if (progress) std::fprintf(stderr, "\r\033[K");
}
