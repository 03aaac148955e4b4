// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// local_socket: local (AF_UNIX) sockets that connect processes of one host. The names of the
// sockets are abstract, so a process that crashes leaves no files behind.

#include <colls/driver/socket.hpp>

#include <sys/un.h>

#include <cstddef>

namespace colls::shm {

/// The abstract name of the local listener that accompanies a rank's TCP listener. The name
/// contains the TCP listener's address, which no other TCP listener in the same network namespace
/// has. Abstract names also belong to a network namespace, so the name is unique in that namespace.
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

/// Makes `local` listen on the local name of the TCP listener `tcp`.
inline std::error_code listen_local(const endpoint& tcp, listener& local) {
  const local_name name(tcp);  // constructed first, because the constructor may change errno
  detail::descriptor socket = open_local_socket();
  if (!socket || ::bind(socket.get(), name.get(), name.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0) {
    return detail::last_error();
  }
  local.adopt(std::move(socket));
  return {};
}

/// Connects to the local name of the TCP listener `tcp` and stores the socket in `connected`.
inline std::error_code connect_local(const endpoint& tcp, detail::descriptor& connected) {
  const local_name name(tcp);  // constructed first, because the constructor may change errno
  connected = open_local_socket();
  const auto connect = [&] { return ::connect(connected.get(), name.get(), name.size); };
  if (!connected || detail::uninterrupted(connect) != 0) {
    const std::error_code ec = detail::last_error();
    connected = {};
    return ec;
  }
  return {};
}

/// Returns whether `socket` is a local socket.
inline bool is_local(int socket) {
  int family = 0;
  socklen_t size = sizeof family;
  return ::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX;
}

/// Returns the id of the process that called connect or listen at the other end of a local socket.
/// Returns 0 if that process is not visible in this PID namespace.
inline pid_t peer_process(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.pid : 0;
}

/// Sends one byte. If `fd` is not negative, sends the descriptor `fd` together with the byte.
/// Returns whether the byte was sent.
inline bool send_descriptor(int socket, int fd) {
  const char mark = fd < 0 ? '-' : '+';
  return detail::send_bytes_with_descriptor(socket, &mark, 1, fd);
}

/// Receives the byte and the descriptor that `send_descriptor` sent. Sets `ec` if a descriptor was
/// sent but could not be received. Returns false if no byte could be received, for example because
/// the connection is closed.
inline bool receive_descriptor(int socket, detail::descriptor& received, std::error_code& ec) {
  char mark = 0;
  if (detail::receive_bytes_with_descriptor(socket, &mark, 1, received) != 1) return false;
  if (mark == '+' && !received) ec = std::make_error_code(std::errc::too_many_files_open);
  return true;
}

/// The answer of a process to which a peer has offered a segment of shared memory. `yes` means that
/// the process has mapped the segment.
enum class answer : char { yes = 'y', no = 'n' };
inline bool send_answer(int socket, answer value) {
  return detail::send_bytes_with_descriptor(socket, &value, sizeof value, -1);
}

}  // namespace colls::shm
