// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Descriptors, and how a process of this host gives one to another.

#include <colls/os/system_call.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace colls::detail {

/// Owns a descriptor.
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int fd) : fd_(fd) {}
  descriptor(descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// The user that opened the other end of a local socket, by the kernel's word; -1: it does not say.
inline std::int64_t user_behind(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known ? std::int64_t{peer.uid} : -1;
}

/// What the kernel calls every user that has no number in this user namespace.
inline constexpr uid_t nameless_user = 65534;

/// Whether every user has a number in this user namespace.
inline bool is_every_user_named() {
  const descriptor map(::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  const ssize_t size = map ? ::read(map.get(), text, sizeof text - 1) : -1;
  unsigned first = 0;
  unsigned outside = 0;
  unsigned count = 0;
  return size > 0 && std::sscanf(text, "%u %u %u", &first, &outside, &count) == 3 && first == 0 &&
         count == UINT32_MAX;
}

/// Whether the other end of a local socket was opened by this process's user, by the kernel's word.
inline bool is_own_user(int socket) {
  const std::int64_t user = user_behind(socket);
  return user == std::int64_t{::geteuid()} && (user != nameless_user || is_every_user_named());
}

/// Sends some bytes, and a descriptor with them if there is one. A fresh connection takes them at
/// once.
inline bool send_with_descriptor(int socket, const void* bytes, std::size_t size, int passed) {
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (passed >= 0) {
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    cmsghdr* const extra = CMSG_FIRSTHDR(&message);
    extra->cmsg_level = SOL_SOCKET;
    extra->cmsg_type = SCM_RIGHTS;
    extra->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(extra), &passed, sizeof passed);
  }
  const ssize_t sent =
      uninterrupted([&] { return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
  return sent == static_cast<ssize_t>(size);
}

/// Reads up to `size` bytes, and a descriptor if one came with them. As `recv`.
inline ssize_t take_with_descriptor(int socket, void* bytes, std::size_t size, descriptor& passed) {
  iovec part{bytes, size};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // in what pads it a second one would be taken
  const ssize_t got =
      uninterrupted([&] { return ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (got < 0) return got;
  const cmsghdr* const extra = CMSG_FIRSTHDR(&message);
  if (extra != nullptr && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
    int found = -1;
    std::memcpy(&found, CMSG_DATA(extra), sizeof found);
    passed = descriptor(found);
  }
  return got;
}

}  // namespace colls::detail
