// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// One rank's run through all sizes.

#include "allowance.hpp"
#include "report.hpp"
#include "workload.hpp"

#include <colls/os/procfs.hpp>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace bench {

/// How many of some barriers a rank left before all had entered them, by the clock that processes
/// of one machine share; on several machines nobody knows, and none is counted.
template <class Communicator, class Host>
colls::task<std::uint64_t> early_exits(workload<Communicator>& work, Host& host) {
  const auto now = [] {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  };
  const auto machine =
      static_cast<double>(std::hash<std::string>()(colls::detail::boot_id()) >> 12);
  std::uint64_t found = 0;
  for (int late = 0; late < std::min(host.size(), 8); ++late) {
    if (host.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<double> latest{now(), 0, machine, -machine};
    co_await work.start();
    latest[1] = -now();
    co_await host.all_reduce(latest, colls::maximum{});
    found += latest[2] == -latest[3] && latest[0] > -latest[1] ? 1 : 0;
  }
  co_return found;
}

/// Ranks that share cores have had unlike shares of them when they have started, and for some 30 ms
/// the scheduler makes up for that: they meet for longer.
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

/// `host` is what the ranks meet and tell each other times by. `rate`: bytes in a second that a
/// floor beside the calls reads and writes, or 0.
template <class Communicator, class Host>
colls::task<> measure(workload<Communicator>& work, Host& host, const options& how,
                      double rate = 0) {
  using clock = std::chrono::steady_clock;
  const bool sized = how.collective != "barrier";
  const std::vector<std::uint64_t> sizes =
      sized ? how.sizes(work.unit()) : std::vector<std::uint64_t>{0};
  const report to(how, host.size(), rate != 0);
  if (host.rank() == 0) to.head();
  if (how.warmup != 0) co_await settle(host);
  std::uint64_t wrong_in_all = 0;
  for (const std::uint64_t bytes : sizes) {
    work.resize(bytes);
    const int warmup = how.warmup_for(bytes);
    int iterations = how.iterations_for(bytes);
    std::vector<double> seconds;
    std::vector<double> spent(1);
    allowance allowed(how.seconds, iterations);
    auto asked = clock::now();
    int turns = 0;
    work.fill();
    for (int k = -warmup; k < iterations; ++k) {
      // What a sum in place has grown to would overflow sooner or later.
      if (how.in_place) work.fill();
      const auto turned = clock::now();
      co_await host.barrier();
      const auto began = how.turns ? turned : clock::now();
      for (int i = 0; i < how.batch; ++i) co_await work.start();
      const auto ended = clock::now();
      const std::chrono::duration<double> took = ended - began;
      if (k >= 0) seconds.push_back(took.count() / how.batch);
      if (how.seconds == 0) continue;
      if (++turns == 1) asked = ended;  // the first opens links
      if (!allowed.is_due(turns, k + 1 == iterations)) continue;
      spent[0] = std::chrono::duration<double>(ended - asked).count();
      co_await host.all_reduce(spent, colls::maximum{});
      iterations = allowed.iterations(k + 1, turns, spent[0]);
      k = std::max(k, -(iterations + 9) / 10);
      asked = clock::now();
    }
    work.fill();
    co_await work.start();
    std::uint64_t wrong[1] = {work.wrong()};
    if (!sized) {
      const std::uint64_t early = co_await early_exits(work, host);
      if (host.rank() == 0) wrong[0] = early;
    }
    std::uint64_t touched[1] = {work.touched()};
    co_await host.all_reduce(wrong);
    if (rate != 0) co_await host.all_reduce(touched);
    co_await host.all_reduce(seconds, colls::maximum{});
    wrong_in_all += wrong[0];
    if (host.rank() == 0) {
      const std::uint64_t element = how.dtype == "double" ? 8 : how.dtype == "bfloat16" ? 2 : 4;
      const double floor = rate == 0 ? 0 : static_cast<double>(touched[0]) / rate;
      to.line(bytes, element, seconds, work.bus_factor(), wrong[0], floor);
    }
  }
  if (wrong_in_all != 0) throw std::runtime_error(std::to_string(wrong_in_all) + " are wrong");
}

}  // namespace bench
