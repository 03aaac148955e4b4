// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Distribution of a generated secret among the ranks of one machine. Rank 0 generates the secret
// and sends it over a local (AF_UNIX) socket, on which the kernel tells each side the user of the
// other side.
//
//   client                 store
//   connect           -->  checks the user by SO_PEERCRED; another user gets no answer
//   checks the user   <--  local secret (80 bytes), end of file
//
// Therefore every connection to a loopback address uses a secret.

#include <colls/bootstrap/handshake.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <array>

namespace colls {

/// The message that the process with the store sends to a process of the same user.
using local_secret_bytes = std::array<std::byte, 80>;

/// A server on a local socket that belongs to a listener of the store. It tells processes of this
/// user which secret the job uses. It sends the generated secret, or it says that a user has given
/// the secret, that the job has none (`insecure`), or that this process has reached its limit on
/// open files. It disconnects processes of other users at a bounded rate: after 64 such processes
/// it pauses for 32 ms.
class local_secret_server final : engine::watcher, engine::source {
 public:
  /// `key` must outlive the server.
  local_secret_server(engine& driver, const secret& key);
  local_secret_server(const local_secret_server&) = delete;
  local_secret_server& operator=(const local_secret_server&) = delete;
  ~local_secret_server();

  /// Listens on the local socket that belongs to the listener `store`. Returns `address_in_use` if
  /// another process uses the name of the local socket.
  std::error_code listen(const listener& store);

 private:
  void ready(std::uint32_t) override;
  void answer(detail::descriptor client);
  // Refuses the connections that wait in the backlog, because this process has no resources for
  // them. Uses the spare descriptor to accept and answer them.
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

/// Fetches the secret of the store at a loopback address. `insecure` permits a job without a
/// secret. Throws `unreachable` if there is no local socket for the address. Throws `auth_failed`
/// if the socket belongs to another user, or if the job has a secret that this process does not
/// have. Throws `too_many_files` if the process with the store has reached its limit on open files;
/// the caller may then try again. Also throws `insecure_bind`, `timeout`, `protocol_error` and
/// `version_mismatch`.
task<secret> fetch_local_secret(engine& driver, endpoint store, bool insecure, time_point deadline);

/// Returns the user id of the process that has the local socket for `store`, or -1 if there is no
/// such socket.
std::int64_t user_listening_beside(const endpoint& store);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/local_secret.ipp>
#endif
