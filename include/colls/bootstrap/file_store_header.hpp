// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The header of the file in which a file store keeps its keys, and a function that creates the
// directory of this file.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/handshake_messages.hpp>
#include <colls/os/procfs.hpp>

#include <sys/stat.h>

#include <cerrno>

namespace colls {

namespace detail {

/// The header of a store's file. It identifies the job and the process that created the file.
struct file_store_header {
  char magic[8] = {'C', 'O', 'L', 'L', 'S', 'F', 'S', '\n'};
  std::uint32_t version = wire_version;
  std::int32_t world = 0;
  std::uint64_t job = 0;
  std::uint64_t nonce = 0;
  std::int64_t pid = 0;  // the id of the process that created the file
  std::uint64_t started = 0;
  std::uint64_t process_space = 0;
  char boot[40] = {};
  char secret[72] = {};

  /// Returns whether this is a valid header of the current wire version.
  bool is_sound() const {
    return std::memcmp(magic, file_store_header{}.magic, sizeof magic) == 0 &&
           version == wire_version && secret[sizeof secret - 1] == 0;
  }
  /// Returns whether the process that created the file is known to have ended. Returns false if
  /// this process cannot tell, because the file was created on another machine, before the last
  /// boot of this machine, or in another PID namespace.
  bool is_abandoned() const {
    const file_store_header local = of_this_process();
    if (std::memcmp(boot, local.boot, sizeof boot) != 0) return false;
    return process_space == local.process_space && start_time_of(pid) != started;
  }
  static file_store_header of_this_process() {
    file_store_header header;
    header.pid = ::getpid();
    header.started = start_time_of(header.pid);
    struct stat facts{};
    if (::stat("/proc/self/ns/pid", &facts) == 0) header.process_space = facts.st_ino;
    std::snprintf(header.boot, sizeof header.boot, "%s", boot_id().c_str());
    return header;
  }
};
static_assert(std::is_trivially_copyable_v<file_store_header>);

/// Creates the directory of the file `path`, with access for this user only. An existing directory
/// must belong to this user, and no other user may have access to it. Throws if the directory
/// cannot be created or used.
inline void make_own_directory(const std::string& path) {
  const std::string directory = path.substr(0, path.rfind('/'));
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    raise(errc::join_failed, "cannot make %s: %s", directory.c_str(), std::strerror(errno));
  }
  if (!is_own_directory(directory)) {
    raise(errc::join_failed, "%s must be a directory of this user alone (mode 0700): remove it",
          directory.c_str());
  }
}

}  // namespace detail

}  // namespace colls
