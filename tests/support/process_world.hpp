// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All ranks of a world of processes in this process, on one engine, for tests. A derived class
// makes their transports.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/when_all.hpp>
#include <colls/driver/engine.hpp>

#include <boost/asio/io_context.hpp>

#include <memory>
#include <vector>

// Tests that make communicators include their header.
namespace colls {
template <class Transport>
class communicator;
namespace detail {
template <class Transport>
class core;
}
}  // namespace colls

template <class Transport>
class process_world {
 public:
  process_world(const process_world&) = delete;
  process_world& operator=(const process_world&) = delete;
  ~process_world() {
    std::vector<colls::task<>> ends;
    for (auto& net : nets_) {
      if (net) ends.push_back(net->close(engine_->now() + 5 * colls::seconds));
    }
    colls::sync_wait(*engine_, colls::when_all(std::move(ends)));
  }

  int size() const { return static_cast<int>(nets_.size()); }
  Transport& operator[](int rank) { return *nets_[static_cast<std::size_t>(rank)]; }
  const std::shared_ptr<Transport>& shared(int rank) {
    return nets_[static_cast<std::size_t>(rank)];
  }
  /// Makes the world communicator of a rank.
  auto communicator_of(int rank) {
    return colls::communicator<Transport>(std::make_unique<colls::detail::core<Transport>>(
        shared(rank), 0, rank, size(), nullptr, true));
  }
  /// As if the rank's process had died: its sockets close without a goodbye.
  static constexpr bool ranks_can_die = true;
  void kill(int rank) { nets_[static_cast<std::size_t>(rank)].reset(); }

  colls::engine& on() { return *engine_; }
  colls::run_queue& queue() { return engine_->queue(); }
  bool poll() { return engine_->poll(); }
  void idle(unsigned polls) { engine_->idle(polls); }
  void enter() { engine_->enter(); }
  void leave() { engine_->leave(); }

 protected:
  explicit process_world(int size)
      : engine_(colls::engine::get(context_.get_executor())),
        nets_(static_cast<std::size_t>(size)) {}

 private:
  boost::asio::io_context context_{1};

 protected:
  std::shared_ptr<colls::engine> engine_;
  std::vector<std::shared_ptr<Transport>> nets_;  // indexed by rank
};
