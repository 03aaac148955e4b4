// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The ranks of the threads transport, all driven by one thread, for tests. The unit test of the
// transport covers the exchange between threads.

#include <colls/threads.hpp>

class driven_threads {
 public:
  explicit driven_threads(int size) : ranks_(size) {}

  int size() const { return ranks_.size(); }
  colls::thread_transport& operator[](int rank) { return ranks_[rank]; }
  auto communicator_of(int rank) { return colls::threads::join(ranks_, rank); }
  static constexpr bool ranks_can_die = false;

  colls::run_queue& queue() { return queue_; }
  bool poll() {
    bool moved = false;
    for (int rank = 0; rank < size(); ++rank) moved |= ranks_[rank].poll();
    return queue_.run() || moved;
  }
  void idle(unsigned) {
    for (int rank = 0; rank < size(); ++rank) ranks_[rank].matching().sweep(ranks_[rank].now());
  }
  void enter() {}
  void leave() {}

 private:
  colls::thread_world ranks_;
  colls::run_queue queue_;
};
