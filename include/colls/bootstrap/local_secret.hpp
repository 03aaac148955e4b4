// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// How ranks of one host come to a common secret where none was given: rank 0 draws it and hands it
// out over a local socket, whose ends the kernel names to each other.
//
//   asking                 store
//   connect           -->  SO_PEERCRED: another user gets no answer
//   SO_PEERCRED       <--  local key (80 bytes), end of file
//
// So no connection to a loopback address is ever made without a secret.

#include <colls/bootstrap/handshake.hpp>
#include <colls/os/rate_limited_log.hpp>

#include <array>

namespace colls {

/// What a store says to a process of its own user.
using local_key_bytes = std::array<std::byte, 80>;

/// Listens beside a store's listener, and tells processes of this user by which secret its job
/// proves itself: the drawn one itself, or only that another was given, or none (`insecure`); or
/// that this process is at its limit on open files. Processes of other users are sent away at a
/// bounded rate: after 64 of them all wait for 32 ms.
class key_server final : engine::watcher, engine::source {
 public:
  /// `key` must outlive the server.
  key_server(engine& on, const secret& key);
  key_server(const key_server&) = delete;
  key_server& operator=(const key_server&) = delete;
  ~key_server();

  /// `address_in_use`: another process has the local socket's name.
  std::error_code listen(const listener& store);

 private:
  void ready(std::uint32_t) override;
  void answer(detail::descriptor asking);
  // This process lacks something for one more connection: those that wait are told, if the spare
  // descriptor helps.
  void refuse();
  // Accepts nothing for so long.
  void rest(time_point span);

  bool poll() override { return false; }
  void sweep(time_point now) override;
  bool pending() const override { return resting_; }

  engine& engine_;
  const secret& key_;
  listener local_;
  spare_descriptor spare_;
  bool resting_ = false;
  time_point rests_until_ = 0;
  int others_ = 0;  // callers of other users since the last rest
  rate_limited_log log_{10};
};

namespace detail {

local_key_bytes write_local_key(const secret& key);

/// The store at a loopback address gives its local key. `insecure`: whether none will do. Throws
/// `unreachable` (nothing of colls listens beside that address), `auth_failed` (another user does,
/// or the job has a secret that this process was not given), `too_many_files` (the store's process:
/// ask again), `insecure_bind`, `timeout`, `protocol_error`, `version_mismatch`.
task<secret> ask_for_local_key(engine& on, endpoint store, bool insecure, time_point deadline);

/// The user whose process listens beside `store`; -1: none does.
std::int64_t user_beside(const endpoint& store);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/local_secret.ipp>
#endif
