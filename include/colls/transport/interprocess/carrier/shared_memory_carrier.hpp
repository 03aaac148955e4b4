// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_memory_carrier: the carrier whose pipes go through shared memory.

#include <colls/transport/interprocess/carrier/listening_carrier.hpp>
#include <colls/transport/interprocess/carrier/shared_memory_pipe.hpp>

#include <unordered_map>

namespace colls::interprocess {

/// The carrier of shared memory. It reaches the ranks of this host through their local sockets. The
/// rank that dials creates the memory and passes it over the local socket. If one of the two ranks
/// has no memory, the pipe goes through that socket.
class shared_memory_carrier final : public listening_carrier {
 public:
  shared_memory_carrier(engine& driver, world_info& info)
      : listening_carrier(driver, info, info.local_listener) {}

  /// Returns false if the peer is on another host, if this rank has no local socket, or if the
  /// peer's local socket does not work. A local socket whose backlog stays full counts as one that
  /// does not work, because another user may be filling the backlog.
  task<bool> dial(dial_attempt& attempt) override;

 private:
  struct refusals {
    int count = 0;                       // how often the peer's local socket refused this rank
    time_point congested_since = never;  // when the peer's local socket became congested
  };

  // Opens a pipe to a peer whose handshake has succeeded. The peer then sends the descriptor of the
  // shared memory, reports that it could not create shared memory, or closes the socket.
  task<> open_accepted(std::unique_ptr<stream> socket, int peer) override;
  // Opens the pipe `shared`. If it is null, opens a pipe through `socket` alone.
  void open_shared(int peer, detail::descriptor socket, std::unique_ptr<shared_memory_pipe> shared);

  bool is_required() const { return world_.cfg.transport == "shm"; }
  [[noreturn]] static void throw_no_shared_memory(std::error_code ec);
  void log_no_shared_memory(std::error_code ec);

  static constexpr time_point max_congestion = 100 * milliseconds;

  std::unordered_map<int, refusals> refusals_;
  bool logged_no_shared_memory_ = false;
};

}  // namespace colls::interprocess

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/transport/interprocess/carrier/shared_memory_carrier.ipp>
#endif
