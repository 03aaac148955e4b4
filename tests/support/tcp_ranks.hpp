// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The communicators of all ranks of a world in this process, for tests.

#include "tcp_world.hpp"

#include <colls/world.hpp>

using communicator = colls::world;

/// The communicators of all ranks of a world.
template <class World>
struct ranks {
  template <class... Args>
  explicit ranks(int size, Args... args) : world(size, args...) {
    for (int rank = 0; rank < size; ++rank) {
      all.push_back(
          communicator(std::make_unique<colls::detail::core<colls::interprocess_transport>>(
              world.shared(rank), 0, rank, size, nullptr, false)));
    }
  }

  template <class Main>
  void run(Main rank_main) {
    std::vector<colls::task<>> mains;
    for (communicator& mine : all) {
      if (mine) mains.push_back(rank_main(mine));
    }
    colls::sync_wait(world, colls::when_all(std::move(mains)));
  }
  void kill(int rank) {
    all[static_cast<std::size_t>(rank)] = communicator();
    world.kill(rank);
  }

  World world;
  std::vector<communicator> all;
};
