// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All ranks of a world in this process, on one engine, connected by the transport of
// docs/adding_a_transport.md, for tests.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/when_all.hpp>

#include "../extend/socketpair.hpp"

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

class socketpair_world {
 public:
  using transport = my::socketpair_transport;

  explicit socketpair_world(int size, bool has_checksums = false)
      : engine_(colls::engine::get(context_.get_executor())) {
    const auto ranks = static_cast<std::size_t>(size);
    std::vector<std::vector<my::descriptor>> ends(ranks);
    for (auto& each : ends) each.resize(ranks);
    for (std::size_t i = 0; i < ranks; ++i) {
      for (std::size_t j = i + 1; j < ranks; ++j) {
        std::tie(ends[i][j], ends[j][i]) = my::make_socketpair();
      }
    }
    for (std::size_t i = 0; i < ranks; ++i) {
      auto info = std::make_shared<colls::world_info>();
      info->rank = static_cast<int>(i);
      info->size = size;
      info->node_of.assign(ranks, 0);
      info->cfg.checksum = has_checksums;
      info->compute_local_ranks();
      nets_.push_back(std::make_shared<transport>(engine_, std::move(info), std::move(ends[i])));
    }
  }
  socketpair_world(const socketpair_world&) = delete;
  socketpair_world& operator=(const socketpair_world&) = delete;
  ~socketpair_world() {
    std::vector<colls::task<>> ends;
    for (auto& net : nets_) {
      if (net) ends.push_back(net->close(engine_->now() + 5 * colls::seconds));
    }
    colls::sync_wait(*engine_, colls::when_all(std::move(ends)));
  }

  int size() const { return static_cast<int>(nets_.size()); }
  transport& operator[](int rank) { return *nets_[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<transport>& shared(int rank) {
    return nets_[static_cast<std::size_t>(rank)];
  }
  /// Makes the world communicator of a rank.
  colls::communicator<transport> communicator_of(int rank) {
    return colls::communicator<transport>(std::make_unique<colls::detail::core<transport>>(
        shared(rank), 0, rank, size(), nullptr, true));
  }
  /// As if the rank's process had died: its sockets close without a goodbye.
  void kill(int rank) { nets_[static_cast<std::size_t>(rank)].reset(); }

  colls::run_queue& queue() { return engine_->queue(); }
  bool poll() { return engine_->poll(); }
  void idle(unsigned polls) { engine_->idle(polls); }
  void enter() { engine_->enter(); }
  void leave() { engine_->leave(); }

 private:
  boost::asio::io_context context_{1};
  std::shared_ptr<colls::engine> engine_;
  std::vector<std::shared_ptr<transport>> nets_;
};
