// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Two threads that repeatedly do something at the same moment, for tests.

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

/// Each of the two threads runs on its own core if there are two, and both leave a barrier within a
/// few nanoseconds of each other. Their next stores reach memory late, behind stores to cache lines
/// that the other thread has written to.
class paired_threads {
 public:
  /// Calls `one(i)` on this thread and `other(i)` on another thread at the same moment, then
  /// `after(i)` on this thread, up to `rounds` times and for at most 3 s.
  template <class One, class Other, class After>
  void run(std::uint64_t rounds, const One& one, const Other& other, const After& after) {
    cpu_set_t all;
    ::sched_getaffinity(0, sizeof all, &all);
    std::thread second([&] {
      pin_to_core(all, 1);
      for (std::uint64_t i = 0; continues(); ++i) {
        wait_for_both();
        other(i);
        wait_for_both();
      }
    });
    pin_to_core(all, 0);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(3);
    for (std::uint64_t i = 0; continues(); ++i) {
      wait_for_both();
      one(i);
      is_last_ = i + 1 == rounds || std::chrono::steady_clock::now() >= limit;
      wait_for_both();
      after(i);
    }
    second.join();
    ::sched_setaffinity(0, sizeof all, &all);
  }

 private:
  struct alignas(64) line {
    std::atomic<std::uint64_t> word = 0;
  };

  // Pins this thread to the core with this index among those of the process, if it exists.
  static void pin_to_core(const cpu_set_t& all, int index) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (!CPU_ISSET(core, &all) || index-- != 0) continue;
      cpu_set_t only;
      CPU_ZERO(&only);
      CPU_SET(core, &only);
      ::sched_setaffinity(0, sizeof only, &only);
      return;
    }
  }
  bool continues() const { return !is_last_; }
  void wait_for_both() {
    const std::uint64_t arrival = arrivals_.word.fetch_add(1);
    const std::uint64_t both = (arrival / 2 + 1) * 2;
    for (int polls = 0; arrivals_.word.load() < both; ++polls) {
      if (polls >= 1000) std::this_thread::yield();
    }
    for (line& each : lines_) each.word.store(arrival, std::memory_order_relaxed);
  }

  line arrivals_;
  line lines_[16];
  std::atomic<bool> is_last_ = false;
};
