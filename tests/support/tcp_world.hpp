// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All ranks of a world in this process, on one engine, connected by TCP or shared memory, for
// tests.

#include <colls/bootstrap/form_world.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include "process_world.hpp"

#include <chrono>
#include <memory>
#include <vector>

class tcp_world : public process_world<colls::interprocess_transport> {
 public:
  explicit tcp_world(int size, const char* transport = "tcp", const char* reads = "",
                     const char* congestion = "", bool checksum = false)
      : process_world(size) {
    std::vector<colls::task<>> joins;
    // Rank 0 inherits a listening socket, so that no other test can take its port.
    colls::listener acceptor;
    (void)acceptor.listen({boost::asio::ip::make_address("127.0.0.1"), 0});
    const int port = acceptor.local().port();
    const int store_fd = ::dup(acceptor.descriptor());
    for (int rank = 0; rank < size; ++rank) {
      colls::config cfg;
      cfg.rank = rank;
      cfg.size = size;
      cfg.address = "tcp://127.0.0.1:" + std::to_string(port);
      cfg.transport = transport;
      cfg.reads = reads;
      cfg.congestion = congestion;
      cfg.checksum = checksum;
      cfg.join_timeout = std::chrono::seconds(20);
      if (rank == 0) cfg.store_fd = store_fd;
      joins.push_back(join(cfg));
    }
    colls::sync_wait(*engine_, colls::when_all(std::move(joins)));
  }

 private:
  colls::task<> join(colls::config cfg) {
    const int rank = cfg.rank;
    auto info = std::make_shared<colls::world_info>();
    *info = co_await colls::form_world(*engine_, cfg);
    nets_[static_cast<std::size_t>(rank)] =
        std::make_shared<colls::interprocess_transport>(engine_, std::move(info));
  }
};

class shm_world : public tcp_world {
 public:
  explicit shm_world(int size, const char* reads = "") : tcp_world(size, "shm", reads) {}
};

/// Worlds over TCP and over shared memory with checksums.
class checked_tcp_world : public tcp_world {
 public:
  explicit checked_tcp_world(int size) : tcp_world(size, "tcp", "", "", true) {}
};
class checked_shm_world : public tcp_world {
 public:
  explicit checked_shm_world(int size) : tcp_world(size, "shm", "never", "", true) {}
};

class hybrid_world : public tcp_world {
 public:
  explicit hybrid_world(int size) : tcp_world(size, "hybrid") {}
};
