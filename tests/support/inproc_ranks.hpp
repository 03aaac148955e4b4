// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The ranks of one thread as a world of tests/transport/suite.hpp.

#include <colls/inproc.hpp>

class inproc_ranks : public colls::inproc_world {
 public:
  static constexpr bool ranks_can_die = false;
  using inproc_world::inproc_world;
  auto communicator_of(int rank) { return colls::inproc::join(*this, rank); }
};
