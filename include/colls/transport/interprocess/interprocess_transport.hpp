// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// interprocess_transport: the transport between ranks that are separate processes. It has the
// carriers of sockets and of shared memory, and windows to the memory of the ranks of one host.

#include <colls/transport/interprocess/transport_base.hpp>
#include <colls/transport/interprocess/window/window_manager.hpp>

namespace colls {

/// The transport of one rank in a world of processes, through TCP and shared memory.
class interprocess_transport final : public transport_base {
 public:
  static constexpr const char* name = "colls";

  interprocess_transport(std::shared_ptr<engine> driver, std::shared_ptr<world_info> info);

  /// Makes the transport of this rank in the world that `info` describes. No other thread may run
  /// handlers of the executor of `driver` during the call.
  static task<std::shared_ptr<interprocess_transport>> make(std::shared_ptr<engine> driver,
                                                            std::shared_ptr<world_info> info) {
    co_return std::make_shared<interprocess_transport>(std::move(driver), std::move(info));
  }

  network_cost costs() const;

  /// Allocates `size` bytes of memory that operations can share with the other ranks of this
  /// host. See `interprocess::window_manager::allocate`.
  std::shared_ptr<std::byte> allocate(std::size_t size) { return windows_.allocate(size); }
  bool can_expose(const_bytes data) const { return windows_.contains(data); }
  struct bounce_buffer : interprocess::window_manager::bounce_buffer {
    explicit bounce_buffer(interprocess_transport& net)
        : interprocess::window_manager::bounce_buffer(net.windows_) {}
  };
  struct exposure : interprocess::window_manager::exposure {
    exposure(interprocess_transport& net, communicator_state& comm)
        : interprocess::window_manager::exposure(net.windows_, comm) {}
  };
  using view = shm::shared_heap_view;
  view* view_of(int peer) { return windows_.view_of(peer); }

 private:
  void opened(interprocess::connection& conn) override {
    if (conn.shares_memory()) windows_.opened(conn);
  }
  void heap_received(interprocess::connection& conn, detail::descriptor heap) override {
    windows_.map_peer_heap(conn, std::move(heap));
  }

  interprocess::window_manager windows_;
};
static_assert(shared_window_transport<interprocess_transport>);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/interprocess_transport.ipp>
#endif
