// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All ranks of a world in this process, on one engine, connected by TCP or shared memory, for
// tests.

#include <colls/bootstrap/form_world.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <chrono>
#include <memory>
#include <vector>

class tcp_world {
 public:
  explicit tcp_world(int size, const char* transport = "tcp", const char* reads = "",
                     const char* congestion = "", bool checksum = false)
      : engine_(colls::engine::get(context_.get_executor())) {
    std::vector<colls::task<>> joins;
    nets_.resize(static_cast<std::size_t>(size));
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
  tcp_world(const tcp_world&) = delete;
  tcp_world& operator=(const tcp_world&) = delete;
  ~tcp_world() {
    std::vector<colls::task<>> ends;
    for (auto& net : nets_) {
      if (net) ends.push_back(net->close(engine_->now() + 5 * colls::seconds));
    }
    colls::sync_wait(*engine_, colls::when_all(std::move(ends)));
  }

  int size() const { return static_cast<int>(nets_.size()); }
  colls::interprocess_transport& operator[](int rank) {
    return *nets_[static_cast<std::size_t>(rank)];
  }
  const std::shared_ptr<colls::interprocess_transport>& shared(int rank) {
    return nets_[static_cast<std::size_t>(rank)];
  }
  /// As if the rank's process had died: its sockets close without a goodbye.
  void kill(int rank) { nets_[static_cast<std::size_t>(rank)].reset(); }

  colls::engine& on() { return *engine_; }
  colls::run_queue& queue() { return engine_->queue(); }
  bool poll() { return engine_->poll(); }
  void idle(unsigned polls) { engine_->idle(polls); }
  void enter() { engine_->enter(); }
  void leave() { engine_->leave(); }

 private:
  colls::task<> join(colls::config cfg) {
    const int rank = cfg.rank;
    auto info = std::make_shared<colls::world_info>();
    *info = co_await colls::form_world(*engine_, cfg);
    nets_[static_cast<std::size_t>(rank)] =
        std::make_shared<colls::interprocess_transport>(engine_, std::move(info));
  }

  boost::asio::io_context context_{1};
  std::shared_ptr<colls::engine> engine_;
  std::vector<std::shared_ptr<colls::interprocess_transport>> nets_;
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
