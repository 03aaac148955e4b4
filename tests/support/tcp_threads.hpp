// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks of a TCP world as threads of this process, each with an executor and links of its own.

#include <colls/driver/socket.hpp>
#include <colls/run.hpp>

#include <chrono>
#include <thread>
#include <vector>

/// `colls::run(rank_main)` as each of `size` ranks; their statuses.
template <class Main>
std::vector<int> run_tcp(int size, const Main& rank_main) {
  // A listening socket that is handed over: no other test can have its port.
  colls::listener door;
  (void)door.listen({boost::asio::ip::make_address("127.0.0.1"), 0});
  const int port = door.local().port();
  const int shared = ::dup(door.descriptor());
  std::vector<int> statuses(static_cast<std::size_t>(size), -1);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    colls::config how;
    how.rank = rank;
    how.size = size;
    how.address = "tcp://127.0.0.1:" + std::to_string(port);
    how.join_timeout = std::chrono::seconds(20);
    how.timeout = std::chrono::seconds(20);
    if (rank == 0) how.store_fd = shared;
    ranks.emplace_back([&statuses, &rank_main, rank, how] {
      statuses[static_cast<std::size_t>(rank)] = colls::run(rank_main, how);
    });
  }
  for (std::thread& each : ranks) each.join();
  return statuses;
}
