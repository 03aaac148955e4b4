// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Runs the suite of all transports.
#include <colls/inproc.hpp>
#include <colls/simulated.hpp>
#include <colls/threads.hpp>
#include <colls/world.hpp>

#include "../support/socketpair_world.hpp"
#include "../support/tcp_world.hpp"
#include "suite.hpp"

namespace {

class inproc_ranks : public colls::inproc_world {
 public:
  static constexpr bool ranks_can_die = false;
  using inproc_world::inproc_world;
  auto communicator_of(int rank) { return colls::inproc::join(*this, rank); }
};

class simulated_ranks : public colls::simulated_world {
 public:
  static constexpr bool ranks_can_die = false;  // tests/sim kills them at every event
  using simulated_world::simulated_world;
  auto communicator_of(int rank) { return colls::simulated::join(*this, rank); }
};

/// Rank threads that one thread drives.
class thread_ranks {
 public:
  static constexpr bool ranks_can_die = false;

  explicit thread_ranks(int size) : ranks_(size) {}
  int size() const { return ranks_.size(); }
  colls::thread_transport& operator[](int rank) { return ranks_[rank]; }
  auto communicator_of(int rank) { return colls::threads::join(ranks_, rank); }

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

template <class Base>
class process_ranks : public Base {
 public:
  static constexpr bool ranks_can_die = true;
  using Base::Base;
  auto communicator_of(int rank) {
    return colls::world(std::make_unique<colls::detail::core<colls::interprocess_transport>>(
        this->shared(rank), 0, rank, this->size(), nullptr, true));
  }
};
using socket_ranks = process_ranks<tcp_world>;
using memory_ranks = process_ranks<shm_world>;
using checked_ranks = process_ranks<checked_tcp_world>;

class own_ranks : public socketpair_world {
 public:
  static constexpr bool ranks_can_die = true;
  using socketpair_world::socketpair_world;
};

}  // namespace

TEST_CASE("ranks on one thread") { transport_suite::passes<inproc_ranks>(); }
TEST_CASE("rank threads") { transport_suite::passes<thread_ranks>(); }
TEST_CASE("ranks on a simulated network") { transport_suite::passes<simulated_ranks>(); }
TEST_CASE("processes over sockets") { transport_suite::passes<socket_ranks>(); }
TEST_CASE("processes over sockets with checksums") { transport_suite::passes<checked_ranks>(); }
TEST_CASE("processes over shared memory") { transport_suite::passes<memory_ranks>(); }
TEST_CASE("processes over a transport of the user's own") { transport_suite::passes<own_ranks>(); }
