// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Which process this is, as the kernel knows it.

#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace colls::detail {

inline std::string read_small_file(const char* path, std::size_t most = 4096) {
  std::string text(most, '\0');
  std::size_t size = 0;
  const int file = uninterrupted([&] { return ::open(path, O_RDONLY | O_CLOEXEC); });
  for (ssize_t got = 1; file >= 0 && got > 0 && size < most;
       size += got > 0 ? static_cast<std::size_t>(got) : 0) {
    got = uninterrupted([&] { return ::read(file, text.data() + size, most - size); });
  }
  if (file >= 0) ::close(file);
  text.resize(size);
  return text;
}

/// Whether that is a directory, and no other user can reach what lies there.
inline bool is_own_directory(const std::string& path) {
  struct stat found{};
  return ::lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         found.st_uid == ::geteuid() && (found.st_mode & 077) == 0;
}

/// Equal for all processes that run on one booted machine.
inline std::string boot_id() {
  std::string id = read_small_file("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id.substr(0, 39);
}

/// Equal for threads of one machine that are in one network namespace; 0: the system does not say.
inline std::uint64_t network_namespace() {
  struct stat found{};
  return ::stat("/proc/thread-self/ns/net", &found) == 0 ? found.st_ino : 0;
}

/// Field `number` of /proc/PID/stat (4: parent, 22: start time in ticks); 0: no such process.
inline std::uint64_t stat_field(long pid, int number) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  const std::string stat = read_small_file(path);
  std::size_t at = stat.rfind(')');  // the name before it may contain anything
  for (int field = 2; field < number && at != std::string::npos; ++field) {
    at = stat.find(' ', at + 1);
  }
  return at == std::string::npos ? 0 : std::strtoull(stat.c_str() + at, nullptr, 10);
}

inline std::uint64_t start_time_of(long pid) { return stat_field(pid, 22); }

/// The launcher of a process, as "pid-start": its nearest ancestor that does not have `variable`
/// itself, since shells and wrappers between the two inherit it.
inline std::string launcher_of(long process, const char* variable) {
  const std::string wanted = std::string("\0", 1) + variable + "=";
  auto pid = static_cast<long>(stat_field(process, 4));
  for (int generation = 0; generation < 64 && pid > 1; ++generation) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    const std::string all = std::string("\0", 1) + read_small_file(path, std::size_t{1} << 20);
    if (all.find(wanted) == std::string::npos) break;
    pid = static_cast<long>(stat_field(pid, 4));
  }
  return std::to_string(pid) + "-" + std::to_string(start_time_of(pid));
}

}  // namespace colls::detail
