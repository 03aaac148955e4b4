// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Two threads that do something at the same moment, again and again: for tests.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

/// Each of the two threads has a core of its own where there are two, and leaves a meeting within a
/// few nanoseconds of the other. What it stores next reaches memory late, behind stores to lines
/// that the other thread has written to.
class meeting_point {
 public:
  /// Calls `one(i)` here and `other(i)` on another thread at the same moment, then `after(i)` here:
  /// so often, or as long as the time lasts.
  template <class One, class Other, class After>
  void run(std::uint64_t rounds, const One& one, const Other& other, const After& after) {
    cpu_set_t all;
    ::sched_getaffinity(0, sizeof all, &all);
    std::thread there([&] {
      stay_on(all, 1);
      for (std::uint64_t i = 0; goes_on(); ++i) {
        meet();
        other(i);
        meet();
      }
    });
    stay_on(all, 0);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (std::uint64_t i = 0; goes_on(); ++i) {
      meet();
      one(i);
      is_last_ = i + 1 == rounds || std::chrono::steady_clock::now() >= limit;
      meet();
      after(i);
    }
    there.join();
    ::sched_setaffinity(0, sizeof all, &all);
  }

 private:
  struct alignas(64) line {
    std::atomic<std::uint64_t> word = 0;
  };

  // The `which`th of those that this process may run on, if there are so many.
  static void stay_on(const cpu_set_t& all, int which) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &all) || which-- != 0) continue;
      cpu_set_t only;
      CPU_ZERO(&only);
      CPU_SET(core, &only);
      ::sched_setaffinity(0, sizeof only, &only);
      return;
    }
  }
  bool goes_on() const { return !is_last_; }
  void meet() {
    const std::uint64_t arrival = arrivals_.word.fetch_add(1);
    const std::uint64_t both = (arrival / 2 + 1) * 2;
    for (int looks = 0; arrivals_.word.load() < both; ++looks) {
      if (looks >= 1000) std::this_thread::yield();
    }
    for (line& each : lines_) each.word.store(arrival, std::memory_order_relaxed);
  }

  line arrivals_;
  line lines_[16];
  std::atomic<bool> is_last_ = false;
};
