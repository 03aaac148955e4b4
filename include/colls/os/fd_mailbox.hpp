// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// fd_mailbox: receives file descriptors from other processes on this machine. A sender does not
// wait for the receiver, because a descriptor stays in the mailbox until the receiver takes it.

#include <colls/os/descriptor.hpp>

#include <fcntl.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace colls {

/// What a descriptor refers to: the process that sends it, and a number that this process gave it.
struct fd_label {
  std::uint64_t process = 0;
  std::uint64_t number = 0;
  friend bool operator==(const fd_label&, const fd_label&) = default;
};

/// A Unix domain socket that receives descriptors from processes of the same user. The system
/// chooses the name of the socket.
class fd_mailbox {
 public:
  fd_mailbox() : socket_(open_socket()) {
    sockaddr_un own{};
    own.sun_family = AF_UNIX;
    socklen_t size = sizeof own.sun_family;
    auto* const address = reinterpret_cast<sockaddr*>(&own);
    if (!socket_ || ::bind(socket_.get(), address, size) != 0 ||
        ::listen(socket_.get(), max_backlog) != 0) {
      return;
    }
    size = sizeof own;
    if (::getsockname(socket_.get(), address, &size) != 0) return;
    const std::size_t length = size - name_offset;
    if (size > name_offset && length <= sizeof name_) {
      std::memcpy(&name_, own.sun_path + 1, length);
    }
  }
  fd_mailbox(const fd_mailbox&) = delete;

  /// Returns the name that other processes pass to `send` to reach this mailbox. Returns 0 if the
  /// socket could not be created.
  std::uint64_t name() const { return name_; }

  /// Sends `fd` and its label to the mailbox called `name`. Returns false if the descriptor cannot
  /// be delivered, for example because the mailbox belongs to another user or another network
  /// namespace, or because this process has too many open descriptors.
  static bool send(std::uint64_t name, const fd_label& label, int fd) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, &name, sizeof name);
    const auto length = static_cast<socklen_t>(::strnlen(address.sun_path + 1, sizeof name));
    const detail::descriptor socket = open_socket();
    return socket && length != 0 &&
           ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address),
                     name_offset + length) == 0 &&
           detail::is_own_user(socket.get()) &&
           detail::send_bytes_with_descriptor(socket.get(), &label, sizeof label, fd);
  }

  /// Removes a descriptor that has the label `wanted` from the mailbox and returns the descriptor.
  /// Returns an empty descriptor if none with this label has arrived.
  detail::descriptor take(const fd_label& wanted) {
    accept_waiting();
    const auto found = std::find_if(messages_.begin(), messages_.end(),
                                    [&](const message& queued) { return queued.label == wanted; });
    if (found == messages_.end()) return {};
    detail::descriptor fd = std::move(found->fd);
    messages_.erase(found);
    return fd;
  }

 private:
  static constexpr socklen_t name_offset = offsetof(sockaddr_un, sun_path) + 1;
  // The mailbox keeps only the newest messages and connections, so that senders cannot exhaust the
  // descriptors of this process.
  static constexpr std::size_t max_messages = 1024;
  static constexpr std::size_t max_connections = 64;
  static constexpr int max_backlog = 1024;

  struct message {
    fd_label label;
    detail::descriptor fd;
  };

  static detail::descriptor open_socket() {
    return detail::descriptor(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  }
  /// Receives the messages that have arrived on open connections. Then accepts waiting connections
  /// and receives their messages. Accepts at most `max_backlog` connections, so that a sender that
  /// connects again and again cannot block this process.
  void accept_waiting() {
    std::erase_if(connections_, [this](const auto& connection) { return try_receive(connection); });
    for (int i = 0; i < max_backlog; ++i) {
      detail::descriptor connection(
          ::accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!connection) break;
      if (!detail::is_own_user(connection.get()) || try_receive(connection)) continue;
      push_bounded(connections_, std::move(connection), max_connections);
    }
  }
  /// Receives the message from `connection`, on which the peer sends only one message. Puts the
  /// message in `messages_` if it is valid. Returns false if the message has not arrived yet. In
  /// this case the caller must keep the connection and try again later.
  bool try_receive(const detail::descriptor& connection) {
    message received;
    const ssize_t size = detail::receive_bytes_with_descriptor(connection.get(), &received.label,
                                                               sizeof received.label, received.fd);
    if (size < 0 && errno == EAGAIN) return false;
    if (size == sizeof received.label && received.fd)
      push_bounded(messages_, std::move(received), max_messages);
    return true;
  }
  template <class T>
  static void push_bounded(std::vector<T>& queue, T&& entry, std::size_t max_size) {
    if (queue.size() == max_size) queue.erase(queue.begin());
    queue.push_back(std::move(entry));
  }

  detail::descriptor socket_;
  std::uint64_t name_ = 0;
  std::vector<detail::descriptor> connections_;
  std::vector<message> messages_;
};

}  // namespace colls
