// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Sharing a generated secret among the ranks of one host: rank 0 generates it and sends it over a
// local socket, on which the kernel tells each side the user of the other.
//
//   client                 store
//   connect           -->  SO_PEERCRED: another user gets no answer
//   SO_PEERCRED       <--  local secret (80 bytes), end of file
//
// Therefore every connection to a loopback address has a secret.

#include <colls/bootstrap/handshake.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <array>

namespace colls {

/// The message that a store sends to a process of its own user.
using local_secret_bytes = std::array<std::byte, 80>;

/// Listens on a local socket that belongs to a store's listener. It tells processes of this user
/// which secret the job uses: the generated secret itself, or only that a user gave one, or that
/// there is none (`insecure`), or that this process has reached its limit on open files. It
/// disconnects processes of other users, at a bounded rate: after 64 of them it pauses for 32 ms.
class local_secret_server final : engine::watcher, engine::source {
 public:
  /// `key` must outlive the server.
  local_secret_server(engine& driver, const secret& key);
  local_secret_server(const local_secret_server&) = delete;
  local_secret_server& operator=(const local_secret_server&) = delete;
  ~local_secret_server();

  /// Returns `address_in_use` if another process has the name of the local socket.
  std::error_code listen(const listener& store);

 private:
  void ready(std::uint32_t) override;
  void answer(detail::descriptor client);
  // This process has no resources for another connection. Refuses those that wait in the backlog,
  // if the spare descriptor permits it.
  void refuse();
  // Accepts no connection for that time.
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

/// Fetches the secret of the store at a loopback address. `insecure` permits a job without one.
/// Throws `unreachable` (there is no local socket for that address), `auth_failed` (it belongs to
/// another user, or the job has a secret that this process does not have), `too_many_files` (the
/// limit of the store's process: try again), `insecure_bind`, `timeout`, `protocol_error`,
/// `version_mismatch`.
task<secret> fetch_local_secret(engine& driver, endpoint store, bool insecure, time_point deadline);

/// Returns the user of the process that has the local socket for `store`, or -1 if there is none.
std::int64_t user_listening_beside(const endpoint& store);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/local_secret.ipp>
#endif
