// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// descriptor: a class that owns a file descriptor, and functions that pass descriptors between
// processes on one machine.

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

/// The owner of a file descriptor. The destructor closes the descriptor.
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

/// Returns the user id that the kernel reports for the peer of a local socket, or -1 if the kernel
/// reports none.
inline std::int64_t peer_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  const bool known = ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
  return known ? std::int64_t{peer.uid} : -1;
}

/// The overflow user id of the kernel, which the kernel reports for every user that is not mapped
/// in this user namespace.
inline constexpr uid_t overflow_user = 65534;

/// Returns whether every user id is mapped in this user namespace.
inline bool is_every_user_mapped() {
  const descriptor map(::open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  const ssize_t size = map ? ::read(map.get(), text, sizeof text - 1) : -1;
  unsigned first = 0;
  unsigned outside = 0;
  unsigned count = 0;
  return size > 0 && std::sscanf(text, "%u %u %u", &first, &outside, &count) == 3 && first == 0 &&
         count == UINT32_MAX;
}

/// Returns whether the peer of a local socket has the effective user id of this process. The
/// overflow user id may stand for several users. If this process has the overflow user id, returns
/// false unless every user id is mapped in this user namespace.
inline bool is_own_user(int socket) {
  const std::int64_t user = peer_user(socket);
  return user == std::int64_t{::geteuid()} && (user != overflow_user || is_every_user_mapped());
}

/// Sends `size` bytes without blocking. If `fd` is not negative, also sends the descriptor `fd`.
/// Returns true if all bytes were sent. A short message that is the first on its connection is
/// either sent completely or not at all, because the empty socket buffer has room for it.
inline bool send_bytes_with_descriptor(int socket, const void* bytes, std::size_t size, int fd) {
  iovec part{const_cast<void*>(bytes), size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  const ssize_t sent =
      uninterrupted([&] { return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL); });
  return sent == static_cast<ssize_t>(size);
}

/// Receives up to `size` bytes without blocking. If the peer has sent a descriptor with the bytes,
/// stores the descriptor in `received`. Returns the number of bytes received, or 0 if the peer has
/// closed the connection. After an error, returns -1, and errno contains the error.
inline ssize_t receive_bytes_with_descriptor(int socket, void* bytes, std::size_t size,
                                             descriptor& received) {
  iovec part{bytes, size};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  // The array `control` ends with padding that has room for a second descriptor. CMSG_LEN does not
  // count this padding, so recvmsg accepts only one descriptor.
  message.msg_controllen = CMSG_LEN(sizeof(int));
  const ssize_t count =
      uninterrupted([&] { return ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC); });
  if (count < 0) return count;
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    int fd = -1;
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
    received = descriptor(fd);
  }
  return count;
}

}  // namespace colls::detail
