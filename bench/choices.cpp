// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Compares the algorithm that is chosen for a call with all algorithms that support it, on
// simulated networks. The choice uses costs that `measure()` measures in a world with as many
// ranks: tuning has no knowledge of the simulator. Prints one JSON line for each point;
// bench/choices.py draws them.

#include "../tools/colls_sim/run.hpp"

#include <nlohmann/json.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace {

using colls::network_cost;
using colls::operation;

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
    {"nodes of 6 that share a link, 20 us, 10 GB/s", 20, 0.5, 10, "nodes:6"},
};

/// All ranks measure the costs of their network.
class measure_job final : public sim::job {
  operation<> start(sim::communicator& comm) override { return comm.measure(); }
  bool is_correct() const override { return true; }
  std::int64_t element_at(int, const std::byte*) const override { return -1; }
};

network_cost measured(sim::options opts) {
  opts.payload = "real";
  measure_job work;
  const sim::simulation done(opts, work);
  return done.comm_of(0).tuning().costs();
}

nlohmann::json point(const network& net, sim::options call, const network_cost& costs) {
  const auto time_us = [&](const sim::simulation& done) {
    done.for_each_failure([&](const colls::failure& reason) {
      throw std::runtime_error(call.algorithm + ": " + to_text(reason));
    });
    if (!done.has_succeeded()) throw std::runtime_error(call.collective + " by " + call.algorithm);
    return static_cast<double>(done.duration()) * 1e-6;
  };
  call.algorithm = "auto";
  const auto automatic = sim::make_job(call);
  const sim::simulation chosen(call, *automatic, costs);
  const double took = time_us(chosen);
  const auto explained = chosen.comm_of(0).explain(call.operation(), call.bytes.value_or(0));
  nlohmann::json times;
  nlohmann::json predicted;
  double best = took;
  for (const auto& prediction : explained.predictions) {
    call.algorithm = name(prediction.choice.id);
    const auto pinned = sim::make_job(call);
    const double time = time_us(sim::simulation(call, *pinned, costs));
    times[call.algorithm] = time;
    predicted[call.algorithm] = static_cast<double>(prediction.cost.time) * 1e-6;
    best = std::min(best, time);
  }
  return {{"network", net.name},
          {"collective", call.collective},
          {"ranks", call.ranks},
          {"bytes", call.bytes.value_or(0)},
          {"chosen", name(explained.chosen.id)},
          {"ratio", took / best},
          {"times_us", times},
          {"predicted_us", predicted}};
}

}  // namespace

int main() {
  const bool progress = isatty(STDERR_FILENO) != 0;
  for (const network& net : networks) {
    for (const int ranks : {2, 3, 4, 7, 8, 16, 24, 48, 64}) {
      sim::options call;
      call.ranks = ranks;
      call.network.latency_us = net.latency_us;
      call.network.overhead_us = net.overhead_us;
      call.network.bandwidth = net.bandwidth;
      call.topology = net.topology;
      call.payload = "phantom";
      const network_cost costs = measured(call);
      for (const char* coll : {"barrier", "broadcast", "all_reduce", "reduce", "reduce_scatter",
                               "all_gather", "gather", "scatter", "all_to_all", "scan"}) {
        if (progress) std::fprintf(stderr, "\r\033[K%s, %d ranks, %s", net.name, ranks, coll);
        call.collective = coll;
        call.bytes.reset();
        const bool has_data = call.operation() != colls::collective::barrier;
        const auto shares = static_cast<std::uint64_t>(ranks) * sizeof(float);
        for (std::uint64_t size = 8; size <= 256 << 20 && (has_data || size == 8); size *= 32) {
          // All ranks have equal blocks, and all collectives the same vector.
          if (has_data) call.bytes = std::max(size / shares, std::uint64_t{1}) * shares;
          std::printf("%s\n", point(net, call, costs).dump().c_str());
          std::fflush(stdout);
        }
      }
    }
  }
  if (progress) std::fprintf(stderr, "\r\033[K");
}
