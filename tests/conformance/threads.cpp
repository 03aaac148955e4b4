// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/transport/threads/thread_transport.hpp>

#include "suite.hpp"

namespace {

/// One thread drives all ranks. The unit test covers the exchange between threads.
class single_threaded_world {
 public:
  explicit single_threaded_world(int size) : ranks_(size) {}

  int size() const { return ranks_.size(); }
  colls::thread_transport& operator[](int rank) { return ranks_[rank]; }
  colls::run_queue& queue() { return queue_; }
  bool poll() {
    bool moved = false;
    for (int rank = 0; rank < size(); ++rank) moved |= ranks_[rank].poll();
    return queue_.run() || moved;
  }
  void idle(unsigned) {}
  void enter() {}
  void leave() {}

 private:
  colls::thread_world ranks_;
  colls::run_queue queue_;
};

}  // namespace

TEST_CASE("every algorithm over threads") { conformance::conforms<single_threaded_world>(); }
