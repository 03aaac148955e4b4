// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A listener that authenticates its peers and limits the resources that unauthenticated peers can
// use.
//
// A connection is pending from the time when the listener accepts it until the peer has been
// authenticated. The listener limits the number of pending connections. If the limit is reached and
// another peer connects, the listener evicts a pending connection: it chooses one at random and
// closes it. A process that opens very many connections therefore cannot permanently keep a
// particular rank from connecting, because an evicted rank connects again. The listener also limits
// the rate of evictions. Each rank therefore has time to prove that it knows the secret of the job,
// and the thread that runs the listener has time for its other work. Connections that the listener
// cannot accept yet wait in the backlog of the socket.

#include <colls/base/log.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/driver/local_socket.hpp>

#include <list>
#include <memory>
#include <string>

namespace colls {

/// A listener that authenticates the peers that connect to a listening socket. A peer must prove
/// within `proof_timeout` (by default 5 s) that it knows the secret of the job. Time during which
/// the engine (the event loop) does not run is not counted. The maximum number of pending
/// connections is twice the number of ranks, but at least 64 and at most 1024. The listener evicts
/// at most 1000 connections per second on average. If this process has reached its limit on open
/// files and the listener cannot evict a connection at this time, the listener refuses new peers.
/// All listeners of a process together write at most one log line per minute about rejected peers.
class authenticating_listener final : engine::watcher, engine::source {
 public:
  class handler {
   public:
    /// Called after the peer with the HELLO `peer` (its first message of the handshake) has proved
    /// that it knows the secret. The handler owns `connection`. The handler must send the peer a
    /// verdict, the message that accepts or rejects the peer.
    virtual void handle_peer(std::unique_ptr<stream> connection, const hello& peer) = 0;

   protected:
    ~handler() = default;
  };

  /// `driver`, `socket` and `receiver` must outlive this object.
  authenticating_listener(engine& driver, listener& socket, const hello& local, const secret& key,
                          handler& receiver, time_point proof_timeout = 5 * seconds);
  authenticating_listener(const authenticating_listener&) = delete;
  authenticating_listener& operator=(const authenticating_listener&) = delete;
  ~authenticating_listener();

  int pending_count() const { return static_cast<int>(pending_.size()) - evicted_; }
  int max_pending() const { return max_pending_; }
  std::uint64_t rejected_count() const { return rejected_; }
  /// If this process failed to accept a connection in the last 10 s, returns the reason. Otherwise
  /// returns an empty string.
  std::string accept_error() const;

 private:
  struct pending_connection {
    std::unique_ptr<stream> connection;
    time_point accepted = 0;  // the value of `active_time_` when the connection was accepted
    bool evicted = false;
  };
  using pending_iterator = std::list<pending_connection>::iterator;

  // A guard whose destructor removes a connection from `pending_`. The destructor also resumes
  // listening, unless a call of `pause` is still in effect.
  class pending_slot {
   public:
    pending_slot(authenticating_listener& owner, pending_iterator slot)
        : owner_(owner), slot_(slot) {}
    pending_slot(const pending_slot&) = delete;
    ~pending_slot() {
      if (slot_->evicted) --owner_.evicted_;
      owner_.pending_.erase(slot_);
      if (owner_.engine_.now() >= owner_.paused_until_) owner_.set_listening(true);
    }

   private:
    authenticating_listener& owner_;
    pending_iterator slot_;
  };

  COLLS_ONCE void ready(std::uint32_t) override;

  // Stops accepting connections for the duration `span`.
  void pause(time_point span);
  task<> wake_at(time_point time);

  task<> authenticate(pending_iterator slot);

  // Returns whether the listener may evict a connection now. `old` is the number of connections
  // that it could evict. Returns false if `old` is 0 or the limit on the rate of evictions is
  // reached.
  bool may_evict(int old);
  // Evicts one of the `old` oldest pending connections, chosen at random, and decrements `old`.
  void evict(int& old);

  // Called when this process lacks the resources for a new connection. `error` is an errno value
  // that names the reason. Uses the reserved descriptor in `spare_` to accept up to 64 connections
  // from the backlog one after the other. Sends each of these peers a refusal and closes its
  // connection. Then stops accepting connections for 100 ms.
  void refuse(int error);

  void set_listening(bool wanted);

  bool poll() override { return false; }
  COLLS_ONCE void sweep(time_point now) override;

  engine& engine_;
  listener& listener_;
  hello local_;
  secret key_;
  handler& handler_;
  time_point proof_timeout_;
  int max_pending_;
  time_point last_sweep_;
  time_point active_time_ = 0;  // how long the engine has run since this object was constructed
  time_point paused_until_ = 0;
  time_point next_eviction_ = 0;
  bool listening_ = true;
  spare_descriptor spare_;
  int accept_error_ = 0;  // the errno of the last failure to accept
  time_point accept_error_time_ = 0;
  std::uint64_t rejected_ = 0;
  std::uint64_t disconnects_ = 0;  // the number of peers that disconnected during the handshake
  int evicted_ = 0;                // the number of evicted connections whose tasks still run
  std::list<pending_connection> pending_;
  task_group tasks_;  // declared last, so that its tasks are destroyed before all other members
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/authenticating_listener.ipp>
#endif
