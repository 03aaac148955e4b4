// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A listener that authenticates its peers and bounds what unauthenticated peers cost.
//
// Unauthenticated connections are few and short-lived. When all slots are in use, a new connection
// evicts one that is chosen at random: a flood cannot aim at a rank, and an evicted rank dials
// again. The rate of evictions is limited, which leaves a rank the time to prove the secret and the
// thread the time for its other work. Further connections wait in the backlog of the socket.

#include <colls/base/log.hpp>
#include <colls/bootstrap/handshake.hpp>
#include <colls/driver/local_socket.hpp>

#include <list>
#include <memory>
#include <string>

namespace colls {

/// Watches a listener and authenticates the peers that connect to it. A peer has 5 s to prove the
/// secret; the time counts only while the engine runs. At most 2 x world (64 to 1024) connections
/// are pending, and at most 1000 a second are evicted. At the limit on open files the peer receives
/// a refusal. All listeners of a process together write one log line a minute about rejected peers.
class authenticating_listener final : engine::watcher, engine::source {
 public:
  class handler {
   public:
    /// `peer` has proved the secret. The handler keeps the connection or closes it, and owes the
    /// peer a verdict.
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
  /// Returns why connections could not be accepted in the last 10 s, or an empty string.
  std::string accept_error() const;

 private:
  struct pending_connection {
    std::unique_ptr<stream> connection;
    time_point accepted = 0;  // on the clock of `active_time_`
    bool evicted = false;
  };
  using pending_iterator = std::list<pending_connection>::iterator;

  // Removes the pending connection when it is destroyed, also by an exception.
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

  void ready(std::uint32_t) override;

  // Accepts no connection for that time.
  void pause(time_point span);
  task<> wake_at(time_point time);

  task<> authenticate(pending_iterator slot);

  // Returns whether one of the `old` connections may be evicted now; the rate is limited.
  bool may_evict(int old);
  // Closes one of the first `old` connections, chosen at random.
  void evict(int& old);

  // This process has no resources for another connection. Refuses those that wait in the backlog,
  // if the spare descriptor permits it.
  void refuse(int error);

  void set_listening(bool wanted);

  bool poll() override { return false; }
  void sweep(time_point now) override;

  engine& engine_;
  listener& listener_;
  hello local_;
  secret key_;
  handler& handler_;
  time_point proof_timeout_;
  int max_pending_;
  time_point last_sweep_;
  time_point active_time_ = 0;  // for which the engine has run
  time_point paused_until_ = 0;
  time_point next_eviction_ = 0;
  bool listening_ = true;
  spare_descriptor spare_;
  int accept_error_ = 0;  // an errno
  time_point accept_error_time_ = 0;
  std::uint64_t rejected_ = 0;
  std::uint64_t disconnects_ = 0;  // peers that closed the connection before they proved the secret
  int evicted_ = 0;                // connections whose tasks have not ended yet
  std::list<pending_connection> pending_;
  task_group tasks_;  // last: its tasks use all of the above
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/authenticating_listener.ipp>
#endif
