// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// procfs: functions that read information about this machine and its processes from /proc, and
// functions that read a file or check the owner of a directory.

#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

namespace colls::detail {

/// Returns the first `max_size` bytes of a file. The result is empty if the file cannot be read.
inline std::string read_small_file(const char* path, std::size_t max_size = 4096) {
  std::string text(max_size, '\0');
  std::size_t size = 0;
  const int file = uninterrupted([&] { return ::open(path, O_RDONLY | O_CLOEXEC); });
  for (ssize_t count = 1; file >= 0 && count > 0 && size < max_size;
       size += count > 0 ? static_cast<std::size_t>(count) : 0) {
    count = uninterrupted([&] { return ::read(file, text.data() + size, max_size - size); });
  }
  if (file >= 0) ::close(file);
  text.resize(size);
  return text;
}

/// Returns whether `path` is a directory that belongs to this user and that no other user can
/// access.
inline bool is_own_directory(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 077) == 0;
}

/// Returns the boot id of this machine, which is the same for all processes until the machine is
/// booted again. Returns an empty string if the boot id cannot be read.
inline std::string boot_id() {
  std::string id = read_small_file("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id.substr(0, 39);
}

/// Returns the number of the network namespace of the calling thread. Different network namespaces
/// of this machine have different numbers. Returns 0 if the system does not report the number.
inline std::uint64_t network_namespace() {
  struct stat info{};
  return ::stat("/proc/thread-self/ns/net", &info) == 0 ? info.st_ino : 0;
}

/// Returns the field `number` of /proc/PID/stat for the process `pid`, or 0 if there is no such
/// process. Field 4 is the process id of the parent, and field 22 is the start time in clock ticks.
inline std::uint64_t stat_field(long pid, int number) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%ld/stat", pid);
  const std::string stat = read_small_file(path);
  std::size_t offset = stat.rfind(')');  // the last ')', because the process name may contain ')'
  for (int field = 2; field < number && offset != std::string::npos; ++field) {
    offset = stat.find(' ', offset + 1);
  }
  return offset == std::string::npos ? 0 : std::strtoull(stat.c_str() + offset, nullptr, 10);
}

/// Returns whether a signal or a debugger has stopped the process `pid`. A stopped process does
/// nothing until it is continued. Returns `std::nullopt` if the state of the process cannot be
/// read. Allocates no memory.
inline std::optional<bool> is_stopped(std::int64_t pid) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%lld/stat", static_cast<long long>(pid));
  const descriptor file(uninterrupted([&] { return ::open(text, O_RDONLY | O_CLOEXEC); }));
  if (!file) return std::nullopt;
  const ssize_t size = uninterrupted([&] { return ::read(file.get(), text, sizeof text); });
  // The state follows the program's name, which is in parentheses. The name may itself contain
  // parentheses, so the last closing parenthesis ends the name.
  const std::string_view stat(text, size > 0 ? static_cast<std::size_t>(size) : 0);
  const std::size_t end = stat.rfind(')');
  if (end == stat.npos || end + 2 >= stat.size()) return std::nullopt;
  return stat[end + 2] == 'T' || stat[end + 2] == 't';
}

inline std::uint64_t start_time_of(long pid) { return stat_field(pid, 22); }

/// Returns the process id and the start time of the launcher (such as mpirun) of `process`, in the
/// form "pid-start". `variable` is an environment variable that the launcher sets for the processes
/// that it starts. If such a process is a shell or a wrapper, its children inherit the variable.
/// Therefore the launcher is the nearest ancestor of `process` that does not have the variable in
/// its own environment.
inline std::string launcher_of(long process, const char* variable) {
  const std::string entry = std::string("\0", 1) + variable + "=";
  auto pid = static_cast<long>(stat_field(process, 4));
  for (int generation = 0; generation < 64 && pid > 1; ++generation) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%ld/environ", pid);
    const std::string environment =
        std::string("\0", 1) + read_small_file(path, std::size_t{1} << 20);
    if (environment.find(entry) == std::string::npos) break;
    pid = static_cast<long>(stat_field(pid, 4));
  }
  return std::to_string(pid) + "-" + std::to_string(start_time_of(pid));
}

}  // namespace colls::detail
