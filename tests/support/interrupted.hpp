// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// System calls of this program that a signal interrupts: every first try of each, while `begin` is
// in force, ends with EINTR. To be included once a program.

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

/// Whether this try is to end with EINTR: each second one is.
inline bool last = false;
inline bool now() {
  last = active && !last;
  if (!last) return false;
  ++count;
  errno = EINTR;
  return true;
}

struct begin {
  begin() {
    active = true;
    last = false;
    count = 0;
  }
  ~begin() { active = false; }
};

}  // namespace interrupted

extern "C" {
ssize_t read(int fd, void* into, std::size_t size) {
  return interrupted::now() ? -1 : ::syscall(SYS_read, fd, into, size);
}
ssize_t write(int fd, const void* from, std::size_t size) {
  return interrupted::now() ? -1 : ::syscall(SYS_write, fd, from, size);
}
ssize_t pread(int fd, void* into, std::size_t size, off_t at) {
  return interrupted::now() ? -1 : ::syscall(SYS_pread64, fd, into, size, at);
}
ssize_t pwrite(int fd, const void* from, std::size_t size, off_t at) {
  return interrupted::now() ? -1 : ::syscall(SYS_pwrite64, fd, from, size, at);
}
int ftruncate(int fd, off_t size) noexcept {
  return interrupted::now() ? -1 : static_cast<int>(::syscall(SYS_ftruncate, fd, size));
}
int fsync(int fd) { return interrupted::now() ? -1 : static_cast<int>(::syscall(SYS_fsync, fd)); }
int flock(int fd, int how) noexcept {
  return interrupted::now() ? -1 : static_cast<int>(::syscall(SYS_flock, fd, how));
}
int open(const char* path, int how, ...) {
  mode_t mode = 0;
  if ((how & O_CREAT) != 0) {
    std::va_list rest;
    va_start(rest, how);
    mode = va_arg(rest, mode_t);
    va_end(rest);
  }
  return interrupted::now() ? -1
                            : static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path, how, mode));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  return interrupted::now() ? -1 : ::syscall(SYS_sendmsg, fd, message, flags);
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  return interrupted::now() ? -1 : ::syscall(SYS_recvmsg, fd, message, flags);
}
/// That of TCP goes on nevertheless.
int connect(int fd, const sockaddr* where, socklen_t size) {
  if (!interrupted::now()) return static_cast<int>(::syscall(SYS_connect, fd, where, size));
  if (where->sa_family != AF_UNIX) (void)::syscall(SYS_connect, fd, where, size);
  errno = EINTR;
  return -1;
}
}
