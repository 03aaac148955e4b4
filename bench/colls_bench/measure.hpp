// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The measurement on one rank: all sizes of one collective.

#include "allowance.hpp"
#include "report.hpp"
#include "workload.hpp"

#include <colls/os/procfs.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace bench {

/// Returns how many of some barriers a rank left before all ranks had entered them, by the clock
/// that the processes of one machine share. Ranks on several machines have no such clock: then it
/// is 0.
template <class Communicator, class Host>
colls::task<std::uint64_t> early_exits(workload<Communicator>& work, Host& host) {
  const auto now = [] {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  };
  const auto machine =
      static_cast<double>(std::hash<std::string>()(colls::detail::boot_id()) >> 12);
  std::uint64_t early = 0;
  for (int late = 0; late < std::min(host.size(), 8); ++late) {
    if (host.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<double> latest{now(), 0, machine, -machine};
    co_await work.start();
    latest[1] = -now();
    co_await host.all_reduce(latest, colls::maximum{});
    early += latest[2] == -latest[3] && latest[0] > -latest[1] ? 1 : 0;
  }
  co_return early;
}

/// Runs barriers until the scheduler has settled. Ranks that share cores have had different amounts
/// of CPU time when they start, and the scheduler compensates for some 30 ms.
template <class Host>
colls::task<> settle(Host& host) {
  using clock = std::chrono::steady_clock;
  const auto began = clock::now();
  std::vector<double> spent(1);
  while (spent[0] < 0.05) {
    for (int i = 0; i < 10; ++i) co_await host.barrier();
    spent[0] = std::chrono::duration<double>(clock::now() - began).count();
    co_await host.all_reduce(spent, colls::maximum{});
  }
}

/// Measures the workload. `host` is the communicator for barriers and for the exchange of times.
/// `rate`: the bytes in a second that the floor reads and writes, or 0 for no floor.
template <class Communicator, class Host>
colls::task<> measure(workload<Communicator>& work, Host& host, const options& opts,
                      double rate = 0) {
  using clock = std::chrono::steady_clock;
  const bool sized = opts.collective != "barrier";
  const std::vector<std::uint64_t> sizes =
      sized ? opts.sizes(work.unit()) : std::vector<std::uint64_t>{0};
  const report output(opts, host.size(), rate != 0);
  if (host.rank() == 0) output.head();
  if (opts.warmup != 0) co_await settle(host);
  std::uint64_t wrong_in_all = 0;
  for (const std::uint64_t bytes : sizes) {
    work.resize(bytes);
    const int warmup = opts.warmup_for(bytes);
    int iterations = opts.iterations_for(bytes);
    std::vector<double> seconds;
    std::vector<double> spent(1);
    allowance allowed(opts.seconds, iterations);
    auto updated = clock::now();
    int calls = 0;
    work.fill();
    for (int k = -warmup; k < iterations; ++k) {
      // The values of sums in place grow with each call and would overflow.
      if (opts.in_place) work.fill();
      const auto before_barrier = clock::now();
      co_await host.barrier();
      const auto began = opts.timed_barrier ? before_barrier : clock::now();
      for (int i = 0; i < opts.batch; ++i) co_await work.start();
      const auto ended = clock::now();
      const std::chrono::duration<double> took = ended - began;
      if (k >= 0) seconds.push_back(took.count() / opts.batch);
      if (opts.seconds == 0) continue;
      if (++calls == 1) updated = ended;  // the first call opens connections
      if (!allowed.is_due(calls, k + 1 == iterations)) continue;
      spent[0] = std::chrono::duration<double>(ended - updated).count();
      co_await host.all_reduce(spent, colls::maximum{});
      iterations = allowed.iterations(k + 1, calls, spent[0]);
      k = std::max(k, -(iterations + 9) / 10);
      updated = clock::now();
    }
    work.fill();
    co_await work.start();
    std::uint64_t wrong[1] = {work.wrong()};
    if (!sized) {
      const std::uint64_t early = co_await early_exits(work, host);
      if (host.rank() == 0) wrong[0] = early;
    }
    std::uint64_t touched[1] = {work.bytes_touched()};
    co_await host.all_reduce(wrong);
    if (rate != 0) co_await host.all_reduce(touched);
    co_await host.all_reduce(seconds, colls::maximum{});
    wrong_in_all += wrong[0];
    if (host.rank() == 0) {
      const std::uint64_t element = opts.dtype == "double" ? 8 : opts.dtype == "bfloat16" ? 2 : 4;
      const double floor = rate == 0 ? 0 : static_cast<double>(touched[0]) / rate;
      output.line(bytes, element, seconds, work.bus_factor(), wrong[0], floor);
    }
  }
  if (wrong_in_all != 0) throw std::runtime_error(std::to_string(wrong_in_all) + " are wrong");
}

}  // namespace bench
