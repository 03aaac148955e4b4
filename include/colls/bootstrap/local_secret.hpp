// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Distribution of a generated secret among the ranks of one machine. Rank 0 generates the secret
// and sends it over local (AF_UNIX) sockets. The kernel tells each side of such a socket the user
// of the other side.
//
//   client                 store
//   connect           -->  checks the user by SO_PEERCRED; another user gets no answer
//   checks the user   <--  local secret (80 bytes), end of file
//
// With this secret, ranks can authenticate connections to a loopback address even if the user gives
// no secret.

#include <colls/bootstrap/handshake.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <array>

namespace colls {

/// The message that a `local_secret_server` sends to a client: the generated secret, or the reason
/// why the message contains no secret.
using local_secret_bytes = std::array<std::byte, 80>;

/// A server that sends the generated secret of the job to other processes of this user on this
/// machine. It listens on a local socket that belongs to a TCP listener of the store (the key-value
/// service through which ranks find each other). If the server cannot send a generated secret, its
/// answer says why: the user has given the secret, the job has no secret (`insecure`), or this
/// process has reached its limit on open files. The server closes connections from other users
/// without an answer. After 64 such connections it accepts no connections for 32 ms, so that other
/// users cannot keep this thread busy.
class local_secret_server final : engine::watcher, engine::source {
 public:
  /// Creates a server that does not listen yet. `key` must outlive the server.
  local_secret_server(engine& driver, const secret& key);
  local_secret_server(const local_secret_server&) = delete;
  local_secret_server& operator=(const local_secret_server&) = delete;
  ~local_secret_server();

  /// Opens the local socket that belongs to the TCP listener `store` and listens on it. The name of
  /// the socket contains the address of `store`. Returns `address_in_use` if another process uses
  /// this name.
  std::error_code listen(const listener& store);

 private:
  COLLS_ONCE void ready(std::uint32_t) override;
  void answer(detail::descriptor client);
  // Called when this process has reached its limit on open files. Closes a spare descriptor so that
  // this process can accept the waiting connections one after another and answer each with a
  // refusal. Then opens a spare descriptor again, and stops accepting connections for 100 ms.
  void refuse();
  // Stops accepting connections for the duration `span`.
  void pause(time_point span);

  bool poll() override { return false; }
  COLLS_ONCE void sweep(time_point now) override;

  engine& engine_;
  const secret& key_;
  listener local_;
  spare_descriptor spare_;
  bool paused_ = false;
  time_point paused_until_ = 0;
  int foreign_ = 0;  // connections of other users since the last pause
  rate_limited_log log_{10};
};

namespace detail {

local_secret_bytes write_local_secret(const secret& key);

/// Fetches the secret of the job from the process that hosts the store. `store` is the address of
/// the store on this machine. Returns an empty secret if the job has none and `insecure` is true.
/// Throws `unreachable` if the store has no local socket. Throws `auth_failed` if another user owns
/// this socket, or if the user has given a secret to the store but not to this process. Throws
/// `too_many_files` if the process that hosts the store has reached its limit on open files. In
/// this case the caller may try again. Also throws `insecure_bind`, `timeout`, `protocol_error` and
/// `version_mismatch`.
task<secret> fetch_local_secret(engine& driver, endpoint store, bool insecure, time_point deadline);

/// Returns the user id of the process that listens on the local socket of the store at the address
/// `store`. Returns -1 if there is no such socket.
std::int64_t user_listening_beside(const endpoint& store);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/local_secret.ipp>
#endif
