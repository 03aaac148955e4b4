// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Ranks of a TCP world as threads of this process, each with its own executor and connections.

#include <colls/driver/socket.hpp>
#include <colls/run.hpp>

#include <chrono>
#include <thread>
#include <vector>

/// Runs `colls::run(rank_main)` as each of `size` ranks and returns their exit statuses.
template <class Main>
std::vector<int> run_tcp(int size, const Main& rank_main) {
  // Rank 0 inherits a listening socket, so that no other test can take its port.
  colls::listener acceptor;
  (void)acceptor.listen({boost::asio::ip::make_address("127.0.0.1"), 0});
  const int port = acceptor.local().port();
  const int store_fd = ::dup(acceptor.descriptor());
  std::vector<int> statuses(static_cast<std::size_t>(size), -1);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    colls::config cfg;
    cfg.rank = rank;
    cfg.size = size;
    cfg.address = "tcp://127.0.0.1:" + std::to_string(port);
    cfg.join_timeout = std::chrono::seconds(20);
    cfg.timeout = std::chrono::seconds(20);
    if (rank == 0) cfg.store_fd = store_fd;
    ranks.emplace_back([&statuses, &rank_main, rank, cfg] {
      statuses[static_cast<std::size_t>(rank)] = colls::run(rank_main, cfg);
    });
  }
  for (std::thread& each : ranks) each.join();
  return statuses;
}
