// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// carrier: the seam between the connector and what opens connections. A carrier opens pipes to
// peers (see pipe.hpp). The two ends of a pipe agree that it is open, or that it is not.

#include <colls/bootstrap/handshake_messages.hpp>
#include <colls/coroutine/task.hpp>
#include <colls/transport/interprocess/carrier/pipe.hpp>

#include <memory>
#include <string>
#include <utility>

namespace colls::interprocess {

/// If a peer has not shown for this long that it is alive, a rank that dials it takes it for dead.
inline constexpr time_point dead_peer_timeout = 10 * seconds;

/// What an attempt to dial a peer has shown.
struct dial_attempt {
  int peer;
  time_span limit = time_span::from_nanoseconds(dead_peer_timeout);  // of the connection
  bool has_address = false;  // the carrier knows where the peer listens
  /// The peer's system has answered, or an error says nothing about the peer.
  bool is_peer_alive = false;
  /// Why the peer could not be reached. `connection_refused` means that the peer no longer listens.
  std::error_code error{};
  bool is_short_of_resources = false;  // `error` says that this rank or its host lacks a resource
  std::error_code error_of_last_carrier{};  // why the previous carrier could not reach the peer
};

/// Opens pipes to peers and accepts those that peers open.
class carrier {
 public:
  /// Decides which pipes a rank opens and accepts.
  class owner {
   public:
    /// Returns the answer to a peer that has dialled this rank. If the answer is
    /// `verdict::accepted`, the carrier must call `accept_ended` when it has opened a pipe to the
    /// peer or has failed to open it.
    virtual verdict judge(int peer) = 0;
    virtual void accept_ended(int peer) = 0;
    /// Returns whether another connection to the peer has opened, or the connection has ended.
    virtual bool is_superseded(int peer) = 0;
    /// Returns whether the carrier may open a pipe to the peer.
    virtual bool is_wanted(int peer) = 0;
    /// Sets whether the peer may have opened its end of a pipe whose end on this rank is not open.
    virtual void set_half_open(int peer, bool half_open) = 0;
    /// Sets the address of the peer that errors name.
    virtual void set_address(int peer, std::string address) = 0;
    /// Called when a pipe has opened. `end` is null if the peer has closed its end already.
    virtual void opened(int peer, std::unique_ptr<pipe> end) = 0;
    /// Called when there is no memory for a pipe that the peer may have opened already.
    virtual void abort(int peer) = 0;

   protected:
    ~owner() = default;
  };

  carrier() = default;
  carrier(const carrier&) = delete;
  carrier& operator=(const carrier&) = delete;
  virtual ~carrier() = default;

  /// Starts to accept peers. `user` must outlive this object.
  virtual void start(owner& user) = 0;
  virtual void stop_listening() = 0;

  /// Tries once to open a pipe to the peer `attempt.peer`. Calls `owner::opened` if a pipe has
  /// opened. Returns false if the next carrier must dial the peer, because this carrier does not
  /// reach it. Throws `error` if the peer has refused the pipe or this rank cannot dial.
  virtual task<bool> dial(dial_attempt& attempt) = 0;
  /// Returns false if the peer's host does not answer any more. While the peer computes, waits
  /// until it is known whether the host answers.
  virtual task<bool> answers(int peer) {
    (void)peer;
    co_return true;
  }
  /// Returns whether the peer's host refuses connections to the peer, which therefore has ended.
  /// Returns false if the host has not answered at `deadline`.
  virtual task<bool> is_refused(int peer, time_point deadline) {
    (void)peer, (void)deadline;
    co_return false;
  }
  /// Returns two ends of a pipe of this rank to itself, or nulls if this carrier opens none.
  virtual std::pair<std::unique_ptr<pipe>, std::unique_ptr<pipe>> open_to_self() { return {}; }
};

}  // namespace colls::interprocess
