// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// process: what lies in another process's own memory, as the kernel lets this one read it.

#include <colls/base/buffer.hpp>
#include <colls/base/clock.hpp>
#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string_view>
#include <system_error>
#include <vector>

namespace colls::shm {

/// Another process of this host, or this one, that has a number of its own in its memory: numbers
/// of processes are given again.
class process {
 public:
  process() = default;
  process(pid_t id, std::uint64_t sign_at, std::uint64_t sign)
      : id_(id), sign_at_(sign_at), sign_(sign) {}
  bool is_known() const { return id_ > 0; }

  /// Its bytes from that address on: all of them, or an error.
  std::error_code read(mutable_bytes into, std::uint64_t address) const {
    if (!is_known()) return std::make_error_code(std::errc::no_such_process);
    std::uint64_t sign = 0;
    const iovec here[] = {{&sign, sizeof sign}, {into.data, into.size}};
    const iovec there[] = {{reinterpret_cast<void*>(sign_at_), sizeof sign},
                           {reinterpret_cast<void*>(address), into.size}};
    const ssize_t got = ::process_vm_readv(id_, here, 2, there, 2, 0);
    if (got < 0) return {errno, std::system_category()};
    if (sign != sign_) return std::make_error_code(std::errc::no_such_process);
    return static_cast<std::size_t>(got) == sizeof sign + into.size
               ? std::error_code()
               : std::make_error_code(std::errc::bad_address);
  }

  /// How long it takes to read so much there, at best; `never`: it cannot be read.
  template <class Clock>
  time_point time_to_read(std::uint64_t address, std::size_t size, const Clock& now) const {
    std::vector<std::byte> into(size, std::byte{1});
    time_point best = never;
    for (int times = 0; times < 5; ++times) {
      const time_point began = now();
      if (read({into.data(), size}, address)) return never;
      best = std::min(best, now() - began);
    }
    return best;
  }

 private:
  pid_t id_ = 0;  // 0: not in sight
  std::uint64_t sign_at_ = 0;
  std::uint64_t sign_ = 0;
};

/// Whether a process that is in sight is stopped, by a signal or a debugger.
inline bool is_stopped(pid_t id) {
  if (id <= 0) return false;
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(id));
  const detail::descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  char text[512];
  const ssize_t size = ::read(file.get(), text, sizeof text);
  if (size <= 0) return false;
  // The name, in brackets, may have brackets in it.
  const std::string_view all(text, static_cast<std::size_t>(size));
  const std::size_t end = all.rfind(')');
  return end != all.npos && end + 2 < all.size() && (all[end + 2] == 'T' || all[end + 2] == 't');
}

}  // namespace colls::shm
