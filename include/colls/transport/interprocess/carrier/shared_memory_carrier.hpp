// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// shared_memory_carrier: the carrier whose pipes go through shared memory.

#include <colls/transport/interprocess/carrier/listening_carrier.hpp>
#include <colls/transport/interprocess/carrier/shared_memory_pipe.hpp>

#include <cerrno>
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
  inline task<bool> dial(dial_attempt& attempt) override;

 private:
  struct refusals {
    int count = 0;                       // how often the peer's local socket refused this rank
    time_point congested_since = never;  // when the peer's local socket became congested
  };

  // Opens a pipe to a peer whose handshake has succeeded. The peer then sends the descriptor of the
  // shared memory, reports that it could not create shared memory, or closes the socket.
  inline task<> open_accepted(std::unique_ptr<stream> socket, int peer) override;
  // Opens the pipe `shared`. If it is null, opens a pipe through `socket` alone.
  void open_shared(int peer, detail::descriptor socket, std::unique_ptr<shared_memory_pipe> shared);

  bool is_required() const { return world_.cfg.transport == "shm"; }
  [[noreturn]] static void throw_no_shared_memory(std::error_code ec);
  void log_no_shared_memory(std::error_code ec);

  static constexpr time_point max_congestion = 100 * milliseconds;

  std::unordered_map<int, refusals> refusals_;
  bool logged_no_shared_memory_ = false;
};

inline task<bool> shared_memory_carrier::dial(dial_attempt& attempt) {
  const int peer = attempt.peer;
  const bool reaches = socket_.is_open() && is_on_this_host(peer);
  if (!reaches && !is_required()) co_return false;
  const endpoint address = co_await look_up(attempt);
  if (!reaches) {
    detail::raise(errc::peer_failed, "shm was asked for, and %s",
                  is_on_this_host(peer)
                      ? "this rank has no local socket"
                      : "it runs on another host, or in another network namespace");
  }
  detail::descriptor fd;
  std::error_code ec = std::make_error_code(std::errc::connection_refused);
  // If the peer has refused three connections through its local socket, this rank no longer dials
  // that socket. The peer probably believes that this process belongs to another user.
  if (refusals_[peer].count < 3) ec = shm::connect_local(address, fd);
  const bool is_congested = ec == std::errc::resource_unavailable_try_again;
  attempt.is_peer_alive = !ec || is_congested;
  time_point& congested_since = refusals_[peer].congested_since;
  if (!is_congested) {
    congested_since = never;
  } else if (congested_since == never) {
    congested_since = engine_.now();
  }
  if (is_congested && (is_required() || engine_.now() - congested_since < max_congestion)) {
    co_return true;
  }
  if (is_local_shortage(ec)) detail::raise(errc::too_many_files, "%s", ec.message().c_str());
  if (!ec && !detail::is_own_user(fd.get())) {
    ec = std::make_error_code(std::errc::permission_denied);
  }
  if (ec) {
    if (is_required()) throw_no_shared_memory(ec);
    attempt.error_of_last_carrier = ec;
    co_return false;
  }
  // The handshake has the same timeout as an operation, because a busy peer answers late. If the
  // peer dies, the kernel closes the peer's end of the connection, and the handshake fails at once.
  stream socket(engine_, std::move(fd));
  socket.set_deadline(handshake_deadline());
  bool accepted = false;
  try {
    accepted = co_await world_.authenticate(socket, peer);
  } catch (const error& thrown) {
    if (thrown.record().code == errc::unreachable) ++refusals_[peer].count;
    throw;
  }
  if (!accepted || !owner_->is_wanted(peer)) co_return true;
  shm::segment memory;
  auto shared = std::make_unique<shared_memory_pipe>(engine_, world_.cfg.checksum);
  const std::size_t ring_bytes =
      shm::ring_buffer_bytes_for(world_.local_size, world_.is_oversubscribed());
  ec = memory.make(shm::connection_bytes(ring_bytes));
  if (!ec) ec = shared->map(memory, 0);
  if (!ec && !shm::send_descriptor(socket.descriptor(), memory.descriptor())) {
    if (errno == EPIPE || errno == ECONNRESET) co_return true;
    ec = {errno, std::system_category()};
  }
  if (ec && is_required()) throw_no_shared_memory(ec);
  if (ec) {
    log_no_shared_memory(ec);
    shared.reset();
    if (!shm::send_descriptor(socket.descriptor(), -1)) co_return true;
  }
  // The peer sends its answer and opens its end of the connection. If this rank stopped waiting for
  // the answer, only the peer's end would be open. This rank therefore waits without a deadline.
  socket.set_deadline(never);
  auto answer = shm::answer::no;
  owner_->set_half_open(peer, true);
  const detail::outcome answered =
      co_await detail::attempt(socket.read({reinterpret_cast<std::byte*>(&answer), 1}));
  owner_->set_half_open(peer, false);
  if (!answered || owner_->is_superseded(peer)) co_return true;
  if (answer != shm::answer::yes) {
    if (is_required()) detail::raise(errc::peer_failed, "it cannot share memory with this rank");
    shared.reset();
  }
  open_shared(peer, socket.release(), std::move(shared));
  co_return true;
}

inline task<> shared_memory_carrier::open_accepted(std::unique_ptr<stream> socket, int peer) {
  socket->set_deadline(handshake_deadline());
  co_await socket->readable();
  std::unique_ptr<shared_memory_pipe> shared;
  detail::descriptor passed;
  std::error_code ec;
  if (!shm::receive_descriptor(socket->descriptor(), passed, ec)) co_return;
  if (passed) {
    shm::segment memory;
    shared = std::make_unique<shared_memory_pipe>(engine_, world_.cfg.checksum);
    ec = memory.adopt(std::move(passed));
    if (!ec) ec = shared->map(memory, 1);
  }
  if (ec) shared.reset();
  if (!owner_->is_wanted(peer)) co_return;
  const auto answer = shared != nullptr ? shm::answer::yes : shm::answer::no;
  if (!shm::send_answer(socket->descriptor(), answer)) co_return;
  if (ec && is_required()) throw_no_shared_memory(ec);
  if (ec) log_no_shared_memory(ec);
  owner_->set_address(peer, "a process of this host");
  open_shared(peer, socket->release(), std::move(shared));
}

inline void shared_memory_carrier::open_shared(int peer, detail::descriptor socket,
                                               std::unique_ptr<shared_memory_pipe> shared) {
  if (shared == nullptr || !socket) return open(peer, std::move(socket));
  shared->adopt(std::move(socket));
  owner_->opened(peer, std::move(shared));
}

inline void shared_memory_carrier::throw_no_shared_memory(std::error_code ec) {
  detail::raise(errc::peer_failed, "it cannot be reached by shared memory: %s",
                ec.message().c_str());
}

inline void shared_memory_carrier::log_no_shared_memory(std::error_code ec) {
  if (std::exchange(logged_no_shared_memory_, true)) return;
  log_warn("rank %d reaches others on this host by sockets, not by shared memory: %s", world_.rank,
           ec.message().c_str());
}

}  // namespace colls::interprocess
