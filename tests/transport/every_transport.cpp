// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Runs the suite of all transports.
#include <colls/inproc.hpp>
#include <colls/simulated.hpp>
#include <colls/world.hpp>

#include "../support/driven_threads.hpp"
#include "../support/inproc_ranks.hpp"
#include "../support/socketpair_world.hpp"
#include "../support/tcp_world.hpp"
#include "suite.hpp"

namespace {

class simulated_ranks : public colls::simulated_world {
 public:
  static constexpr bool ranks_can_die = false;  // tests/sim kills them at every event
  using simulated_world::simulated_world;
  auto communicator_of(int rank) { return colls::simulated::join(*this, rank); }
};

}  // namespace

TEST_CASE("ranks on one thread") { transport_suite::passes<inproc_ranks>(); }
TEST_CASE("rank threads") { transport_suite::passes<driven_threads>(); }
TEST_CASE("ranks on a simulated network") { transport_suite::passes<simulated_ranks>(); }
TEST_CASE("processes over sockets") { transport_suite::passes<tcp_world>(); }
TEST_CASE("processes over sockets with checksums") { transport_suite::passes<checked_tcp_world>(); }
TEST_CASE("processes over shared memory") { transport_suite::passes<shm_world>(); }
TEST_CASE("processes over a transport of the user's own") {
  transport_suite::passes<socketpair_world>();
}
