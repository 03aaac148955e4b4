// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// System calls that are interrupted by a signal: while an object of type `begin` exists, every
// second system call fails with EINTR. Only one file of a program may include this.

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

namespace interrupted {

inline bool active = false;
inline int count = 0;

/// Whether this system call fails with EINTR: every second one does.
inline bool last_failed = false;
inline bool now() {
  last_failed = active && !last_failed;
  if (!last_failed) return false;
  ++count;
  errno = EINTR;
  return true;
}

struct begin {
  begin() {
    active = true;
    last_failed = false;
    count = 0;
  }
  ~begin() { active = false; }
};

}  // namespace interrupted

extern "C" {
ssize_t read(int fd, void* data, std::size_t size) {
  return interrupted::now() ? -1 : ::syscall(SYS_read, fd, data, size);
}
ssize_t write(int fd, const void* data, std::size_t size) {
  return interrupted::now() ? -1 : ::syscall(SYS_write, fd, data, size);
}
ssize_t pread(int fd, void* data, std::size_t size, off_t offset) {
  return interrupted::now() ? -1 : ::syscall(SYS_pread64, fd, data, size, offset);
}
ssize_t pwrite(int fd, const void* data, std::size_t size, off_t offset) {
  return interrupted::now() ? -1 : ::syscall(SYS_pwrite64, fd, data, size, offset);
}
int ftruncate(int fd, off_t size) noexcept {
  return interrupted::now() ? -1 : static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int fsync(int fd) { return interrupted::now() ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int flock(int fd, int operation) noexcept {
  return interrupted::now() ? -1 : static_cast<int>(::syscall(SYS_flock, fd, operation));
}
int open(const char* path, int flags, ...) {
  mode_t mode = 0;
  if ((flags & O_CREAT) != 0) {
    std::va_list rest;
    va_start(rest, flags);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  return interrupted::now() ? -1
                            : static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, flags, mode));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return interrupted::now() ? -1 : ::syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return interrupted::now() ? -1 : ::syscall(SYS_recvmsg, fd, message, flags);
}
/// An interrupted connect of TCP continues in the background.
int connect(int fd, const sockaddr* address, socklen_t size) {
  if (!interrupted::now()) return static_cast<int>(::syscall(SYS_connect, fd, address, size));
  if (address->sa_family != AF_UNIX) (void)::syscall(SYS_connect, fd, address, size);
  errno = EINTR;
  return -1;
}
}
