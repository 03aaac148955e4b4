// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Sockets between processes of one user on one host: abstract names, so that nothing stays behind.

#include <colls/driver/socket.hpp>

#include <sys/un.h>

#include <cstddef>

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
inline std::error_code listen_beside(const endpoint& tcp, listener& local) {
  const local_name name(tcp);  // first: it clears errno
  detail::descriptor made = open_local_socket();
  if (!made || ::bind(made.get(), name.get(), name.size) != 0 ||
      ::listen(made.get(), SOMAXCONN) != 0) {
    return detail::last_error();
  }
  local.adopt(std::move(made));
  return {};
}

inline std::error_code connect_beside(const endpoint& tcp, detail::descriptor& connected) {
  const local_name name(tcp);  // first: it clears errno
  connected = open_local_socket();
  const auto connect = [&] { return ::connect(connected.get(), name.get(), name.size); };
  if (!connected || detail::uninterrupted(connect) != 0) {
    const std::error_code ec = detail::last_error();
    connected = {};
    return ec;
  }
  return {};
}

inline bool is_local(int socket) {
  int family = 0;
  socklen_t size = sizeof family;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX;
}

/// The process that has connected or listened at the other end; 0: none that this one can see.
inline pid_t process_behind(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 ? who.pid : 0;
}

/// Sends one byte, and a descriptor with it if there is one.
inline bool pass_descriptor(int socket, int passed) {
  const char word = passed < 0 ? '-' : '+';
  return detail::send_with_descriptor(socket, &word, 1, passed);
}

/// The byte and what came with it, if the other side had something to pass; `ec` says why that did
/// not come. False: it is gone.
inline bool take_descriptor(int socket, detail::descriptor& passed, std::error_code& ec) {
  char word = 0;
  if (detail::take_with_descriptor(socket, &word, 1, passed) != 1) return false;
  if (word == '+' && !passed) ec = std::make_error_code(std::errc::too_many_files_open);
  return true;
}

/// What is answered to a descriptor: whether memory is shared now.
enum class answer : char { yes = 'y', no = 'n' };
inline bool give_answer(int socket, answer what) {
  return detail::send_with_descriptor(socket, &what, sizeof what, -1);
}

}  // namespace colls::shm
