// SPDX-FileCopyrightText: 2026 The colls authors SPDX-License-Identifier: BSL-1.0 Measures the time
// from the death of a rank to the first result of the ranks that are left. Rank 0 of these prints
// the shares in milliseconds: until the failure is known, until shrink has returned, until the
// first all_reduce on its result has ended. Each is that of the last rank.
//
// usage: colls-run --on-failure shrink -n N recovery-time RANK    (RANK is killed)

#include <colls/op.hpp>
#include <colls/run.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>

namespace {

/// Returns the milliseconds on a clock that the processes of this host share.
double now() {
  timespec clock{};
  ::clock_gettime(CLOCK_MONOTONIC, &clock);
  return static_cast<double>(clock.tv_sec) * 1e3 + static_cast<double>(clock.tv_nsec) * 1e-6;
}

colls::task<int> measure(colls::world& world, int victim) {
  float data[1024] = {};
  for (int step = 0; step < 100; ++step) co_await world.all_reduce(data);
  double death[] = {now() + 20};
  co_await world.broadcast(death, 0);
  double known = 0;
  try {
    for (;;) {
      if (world.rank() == victim && now() >= death[0]) std::raise(SIGKILL);
      co_await world.all_reduce(data);
    }
  } catch (const colls::error&) {
    known = now();
  }
  colls::world left = co_await world.shrink();
  const double shrunk = now();
  co_await left.all_reduce(data);
  double ends[] = {known - death[0], shrunk - death[0], now() - death[0]};
  co_await left.all_reduce(ends, colls::maximum{});
  if (left.rank() == 0) {
    std::printf("result %.3f %.3f %.3f\n", ends[0], ends[1] - ends[0], ends[2] - ends[1]);
  }
  co_await left.close();
  co_return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int victim = argc == 2 ? std::atoi(argv[1]) : -1;
  return colls::run([victim](colls::world& world) -> colls::task<int> {
    if (victim < 0 || victim >= world.size() || world.size() < 2) {
      std::fprintf(stderr, "usage: colls-run --on-failure shrink -n N recovery-time RANK\n");
      co_return 2;
    }
    co_return co_await measure(world, victim);
  });
}
