// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Descriptors, and how a process of this host gives one to another.

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
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

/// Whether the other end of a local socket was opened by this process's user, by the kernel's word.
inline bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
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
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(size);
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
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
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
