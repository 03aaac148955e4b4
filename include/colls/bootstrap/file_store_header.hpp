// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The file of a file store: its head, who made it, and the directory it may lie in.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/handshake_messages.hpp>
#include <colls/os/procfs.hpp>

#include <sys/stat.h>

#include <cerrno>

namespace colls {

namespace detail {

/// The first bytes of a store's file.
struct store_file_head {
  char magic[8] = {'C', 'O', 'L', 'L', 'S', 'F', 'S', '\n'};
  std::uint32_t version = wire_version;
  std::int32_t world = 0;
  std::uint64_t job = 0;
  std::uint64_t nonce = 0;
  std::int64_t pid = 0;  // of who made it
  std::uint64_t started = 0;
  std::uint64_t process_space = 0;
  char boot[40] = {};
  char secret[72] = {};

  bool is_sound() const {
    return std::memcmp(magic, store_file_head{}.magic, sizeof magic) == 0 &&
           version == wire_version && secret[sizeof secret - 1] == 0;
  }
  /// Who made it is known to be gone.
  bool is_abandoned() const {
    const store_file_head mine = of_this_process();
    if (std::memcmp(boot, mine.boot, sizeof boot) != 0) return false;
    return process_space == mine.process_space && start_time_of(pid) != started;
  }
  static store_file_head of_this_process() {
    store_file_head head;
    head.pid = ::getpid();
    head.started = start_time_of(head.pid);
    struct stat space{};
    if (::stat("/proc/self/ns/pid", &space) == 0) head.process_space = space.st_ino;
    std::snprintf(head.boot, sizeof head.boot, "%s", boot_id().c_str());
    return head;
  }
};
static_assert(std::is_trivially_copyable_v<store_file_head>);

/// Makes the directory of `path` for this user alone, or takes it if it is so already.
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
