// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// cross_memory_attach: reads the private memory of another process with the system call
// process_vm_readv. This method is called cross-memory attach (CMA).

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

/// A reader of the memory of one process on this host. Each read also reads a nonce at a known
/// address of the process and compares the nonce with the expected value. A difference shows that
/// the process has ended and that another process now has its id.
class cross_memory_attach {
 public:
  cross_memory_attach() = default;
  cross_memory_attach(pid_t id, std::uint64_t nonce_address, std::uint64_t nonce)
      : id_(id), nonce_address_(nonce_address), nonce_(nonce) {}
  bool is_known() const { return id_ > 0; }

  /// Reads `dest.size` bytes at `address` in the memory of the process. Returns an error unless all
  /// bytes were read.
  std::error_code read(mutable_bytes dest, std::uint64_t address) const {
    if (!is_known()) return std::make_error_code(std::errc::no_such_process);
    std::uint64_t nonce = 0;
    const iovec local[] = {{&nonce, sizeof nonce}, {dest.data, dest.size}};
    const iovec remote[] = {{reinterpret_cast<void*>(nonce_address_), sizeof nonce},
                            {reinterpret_cast<void*>(address), dest.size}};
    const ssize_t count = ::process_vm_readv(id_, local, 2, remote, 2, 0);
    if (count < 0) return {errno, std::system_category()};
    if (nonce != nonce_) return std::make_error_code(std::errc::no_such_process);
    return static_cast<std::size_t>(count) == sizeof nonce + dest.size
               ? std::error_code()
               : std::make_error_code(std::errc::bad_address);
  }

  /// Measures the time of several reads of `size` bytes at `address`. Returns the shortest time, or
  /// `never` if the memory cannot be read.
  template <class Clock>
  time_point time_to_read(std::uint64_t address, std::size_t size, const Clock& now) const {
    std::vector<std::byte> dest(size, std::byte{1});
    time_point best = never;
    for (int times = 0; times < 5; ++times) {
      const time_point start = now();
      if (read({dest.data(), size}, address)) return never;
      best = std::min(best, now() - start);
    }
    return best;
  }

 private:
  pid_t id_ = 0;  // 0 if the process is not visible in this PID namespace
  std::uint64_t nonce_address_ = 0;
  std::uint64_t nonce_ = 0;
};

}  // namespace colls::shm
