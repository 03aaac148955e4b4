// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Sockets between processes of one user on one host: abstract names, so that nothing stays behind.

#include <colls/transport/socket.hpp>

#include <sys/un.h>

#include <cstddef>
#include <cstring>

namespace colls::shm {

/// The abstract name that belongs to a rank's TCP listener. Both are of one network namespace.
struct local_name {
  sockaddr_un address{};
  socklen_t size = 0;

  explicit local_name(const endpoint& listener) {
    address.sun_family = AF_UNIX;
    const int length =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "colls %s %d",
                      listener.address().to_string().c_str(), listener.port());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 +
                                  static_cast<std::size_t>(length));
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

inline detail::descriptor open_local_socket() {
  return detail::descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

/// Listens beside a TCP listener.
inline std::error_code listen_beside(const listener& tcp, listener& local) {
  detail::descriptor made = open_local_socket();
  const local_name name(tcp.local());
  if (!made || ::bind(made.get(), name.get(), name.size) != 0 ||
      ::listen(made.get(), SOMAXCONN) != 0) {
    return detail::last_error();
  }
  local.adopt(std::move(made));
  return {};
}

inline std::error_code connect_beside(const endpoint& tcp, detail::descriptor& connected) {
  connected = open_local_socket();
  const local_name name(tcp);
  if (!connected || ::connect(connected.get(), name.get(), name.size) != 0) {
    const std::error_code ec = detail::last_error();
    connected = {};
    return ec;
  }
  return {};
}

/// Whether the other end was opened by this process's user, by the kernel's word.
inline bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == ::geteuid();
}

inline bool is_local(int socket) {
  int family = 0;
  socklen_t size = sizeof family;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX;
}

/// Sends one byte, and a descriptor with it if there is one. A fresh connection takes it at once.
inline bool pass_descriptor(int socket, int passed) {
  char word = passed < 0 ? '-' : '+';
  iovec part{&word, 1};
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
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

/// Reads up to `size` bytes, and a descriptor if one came with them. As `recv`.
inline ssize_t take_with_descriptor(int socket, char* bytes, std::size_t size,
                                    detail::descriptor& passed) {
  iovec part{bytes, size};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got <= 0) return got;
  const cmsghdr* const extra = CMSG_FIRSTHDR(&message);
  if (extra != nullptr && extra->cmsg_level == SOL_SOCKET && extra->cmsg_type == SCM_RIGHTS) {
    int found = -1;
    std::memcpy(&found, CMSG_DATA(extra), sizeof found);
    passed = detail::descriptor(found);
  }
  return got;
}

/// The byte and what came with it, if the other side had something to pass. False: it is gone.
inline bool take_descriptor(int socket, detail::descriptor& passed) {
  char word = 0;
  return take_with_descriptor(socket, &word, 1, passed) == 1;
}

}  // namespace colls::shm
