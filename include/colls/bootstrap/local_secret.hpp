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
// Connections to a loopback address thus use a secret even if the user gives none.

#include <colls/bootstrap/handshake.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <array>

namespace colls {

/// The message that a `local_secret_server` sends to a client: the generated secret, or the reason
/// why the message contains no secret.
using local_secret_bytes = std::array<std::byte, 80>;

/// A server that tells processes of this user the secret of the job. It listens on the local socket
/// that accompanies a listener of the store (the key-value service through which ranks find each
/// other). It answers with the generated secret, or says that the user has given the secret, that
/// the job has none (`insecure`), or that this process has reached its limit on open files. It
/// disconnects processes of other users without an answer. After 64 such connections it pauses for
/// 32 ms, so that other users cannot occupy the thread.
class local_secret_server final : engine::watcher, engine::source {
 public:
  /// `key` must outlive the server.
  local_secret_server(engine& driver, const secret& key);
  local_secret_server(const local_secret_server&) = delete;
  local_secret_server& operator=(const local_secret_server&) = delete;
  ~local_secret_server();

  /// Listens on the local socket that accompanies the listener `store`. Returns `address_in_use` if
  /// another process uses the name of this socket.
  std::error_code listen(const listener& store);

 private:
  void ready(std::uint32_t) override;
  void answer(detail::descriptor client);
  // Called when this process has reached its limit on open files. Closes a spare descriptor for a
  // moment, so that this process can accept the connections that wait in the backlog and answer
  // each with a refusal. Then stops accepting connections for 100 ms.
  void refuse();
  // Stops accepting connections for the duration `span`.
  void pause(time_point span);

  bool poll() override { return false; }
  void sweep(time_point now) override;

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

/// Fetches the secret of the job from the process that hosts the store at `store`, an address of
/// this machine. Returns an empty secret if the job has none and `insecure` is true. Throws
/// `unreachable` if there is no local socket for the address. Throws `auth_failed` if the socket
/// belongs to another user, or if the user has given the job a secret that this process does not
/// have. Throws `too_many_files` if the process with the store has reached its limit on open files;
/// the caller may then try again. Also throws `insecure_bind`, `timeout`, `protocol_error` and
/// `version_mismatch`.
task<secret> fetch_local_secret(engine& driver, endpoint store, bool insecure, time_point deadline);

/// Returns the user id of the process that listens on the local socket for the address `store`, or
/// -1 if there is no such socket.
std::int64_t user_listening_beside(const endpoint& store);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/local_secret.ipp>
#endif
