// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// socket: TCP sockets that an engine (the event loop) drives. The bootstrap, the stores and the
// handshakes of connections use these sockets.

#include <colls/base/buffer.hpp>
#include <colls/coroutine/task.hpp>
#include <colls/coroutine/task_group.hpp>
#include <colls/driver/engine.hpp>
#include <colls/os/descriptor.hpp>
#include <colls/os/system_call.hpp>

#include <boost/asio/ip/tcp.hpp>

#include <netinet/tcp.h>
#include <poll.h>
#include <sys/uio.h>

#include <cerrno>
#include <string_view>

namespace colls {

using endpoint = boost::asio::ip::tcp::endpoint;

namespace detail {

inline descriptor open_socket(const endpoint& address) {
  return descriptor(::socket(address.protocol().family(),
                             SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

/// Selects the TCP congestion control algorithm of a socket.
std::error_code set_congestion(int socket, std::string_view name);

/// Returns the local address of a socket if `get_name` is getsockname, and the remote address if
/// `get_name` is getpeername. Returns the loopback address if the socket is an AF_UNIX socket or if
/// `get_name` fails.
endpoint socket_endpoint(int fd, decltype(&::getsockname) get_name);

/// Opens a temporary socket and selects the congestion control algorithm `name` for it. Returns an
/// error if the system refuses the algorithm. Returns success if no socket can be opened, because
/// the algorithm then cannot be checked.
std::error_code try_congestion(std::string_view name);

}  // namespace detail

/// A TCP or AF_UNIX stream socket. One read and one write may be in flight at a time. The result of
/// each operation is an error_code: success, `errc::timeout` if the deadline of the stream has
/// passed, `errc::closed` at the end of the stream, `errc::cancelled` if `close` was called during
/// the operation, or a system error. The destructor closes the descriptor.
class stream final : engine::watcher, engine::source {
 public:
  explicit stream(engine& executor_engine);
  /// Constructs a stream that owns the socket `connected`. Throws if the engine cannot watch
  /// another descriptor.
  stream(engine& executor_engine, detail::descriptor connected);
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream();

  engine& driver() { return engine_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  endpoint remote() const { return detail::socket_endpoint(socket_.get(), &::getpeername); }
  endpoint local() const { return detail::socket_endpoint(socket_.get(), &::getsockname); }

  /// Sets the deadline of all reads, writes and connects, including those in flight.
  void set_deadline(time_point time) { deadline_ = time; }

  /// Completes the operations in flight with `errc::cancelled` and closes the descriptor.
  void close();

  /// Returns the descriptor, which the caller then owns. No operation may be in flight.
  detail::descriptor release() {
    engine_.unwatch(socket_.get(), *this);
    return std::move(socket_);
  }

  struct transfer {
    transfer(stream* connection, mutable_bytes bytes)
        : owner(connection), data(bytes.data), left(bytes.size) {}

    stream* owner;
    std::byte* data;
    std::size_t left;
    std::size_t moved = 0;
    std::size_t* count = nullptr;  // if not null, the first bytes complete the transfer
    bool peeking = false;          // a read leaves the bytes in the socket
    bool connecting = false;
    std::error_code ec;
    completion* done = nullptr;
  };

  /// Reads until `dest` is full.
  auto read(mutable_bytes dest) { return operation<true>({this, dest}); }
  /// Reads at least one byte. Sets `*count` to the number of bytes read.
  auto read_some(mutable_bytes dest, std::size_t* count) {
    transfer work(this, dest);
    work.count = count;
    return operation<true>(work);
  }
  /// Returns whether a read would not have to wait. This is the case if bytes or the end of the
  /// stream have arrived.
  bool has_input() const { return is_ready(POLLIN); }
  /// Waits until bytes have arrived, and leaves the bytes in the socket for a later read.
  auto readable() {
    transfer work(this, {&peeked_, 1});
    work.peeking = true;
    return operation<true>(work);
  }
  /// Writes all of `bytes`.
  auto write(const_bytes bytes) {
    return operation<false>({this, {const_cast<std::byte*>(bytes.data), bytes.size}});
  }
  /// Connects to `address`. The operating system chooses the local address and port.
  auto connect(const endpoint& address) {
    transfer work(this, {});
    work.connecting = true;
    detail::descriptor socket = detail::open_socket(address);
    if (!socket) {
      work.ec = detail::last_error();
    } else {
      const int result =
          ::connect(socket.get(), address.data(), static_cast<socklen_t>(address.size()));
      // EINTR is no failure. If a signal interrupts `connect`, the kernel continues to establish
      // the connection in the background, as it does after EINPROGRESS.
      if (result != 0 && errno != EINPROGRESS && errno != EINTR) {
        work.ec = detail::last_error();
      } else {
        adopt(std::move(socket));
      }
    }
    return operation<false>(work);
  }

 private:
  template <bool Reading>
  struct operation {
    transfer work;

    explicit operation(const transfer& initial) : work(initial) {}
    operation(operation&& other) noexcept : work(other.work) {}
    ~operation() {
      if (slot() == &work) slot() = nullptr;
    }
    transfer*& slot() { return Reading ? work.owner->reading_ : work.owner->writing_; }
    bool start(completion& done) {
      if (work.ec) return true;
      if (!work.owner->socket_) {
        work.ec = make_error_code(errc::closed);
        return true;
      }
      work.done = &done;
      // A connect has ended when the socket is writable. Only then can `step` find out whether the
      // connect has succeeded. A connect within one machine often ends at once.
      const bool may_step = !work.connecting || work.owner->is_ready(POLLOUT);
      if (may_step && work.owner->template step<Reading>(work)) return true;
      slot() = &work;
      work.owner->update_events();
      return false;
    }
    std::error_code result() {
      if (work.count != nullptr) *work.count = work.moved;
      return work.ec;
    }
  };

  void adopt(detail::descriptor socket);

  bool is_ready(short events) const;

  // Continues the read, write or connect `work` without waiting. Returns true if the operation has
  // completed, with or without an error. Returns false if it must wait until the socket is ready.
  template <bool Reading>
  bool step(transfer& work) {
    if (work.connecting) {
      int code = 0;
      socklen_t size = sizeof code;
      if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
      if (code != 0) work.ec = {code, std::generic_category()};
      return true;
    }
    while (work.left > 0) {
      const ssize_t moved =
          Reading ? ::recv(socket_.get(), work.data, work.left,
                           MSG_DONTWAIT | (work.peeking ? MSG_PEEK : 0))
                  : ::send(socket_.get(), work.data, work.left, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (moved > 0) {
        work.data += moved;
        work.left -= static_cast<std::size_t>(moved);
        work.moved += static_cast<std::size_t>(moved);
        if (work.count != nullptr) return true;
      } else if (moved == 0) {
        work.ec = make_error_code(errc::closed);
        return true;
      } else if (detail::would_block()) {
        return false;
      } else {
        work.ec = detail::last_error();
        return true;
      }
    }
    return true;
  }

  static void finish(transfer*& slot, std::error_code ec = {}) {
    if (slot == nullptr) return;
    transfer& work = *std::exchange(slot, nullptr);
    if (ec) work.ec = ec;
    work.done->post();
  }

  // Tells the engine for which events it must watch the socket: EPOLLIN while a read is in flight,
  // and EPOLLOUT while a write or a connect is in flight.
  void update_events();

  COLLS_ONCE void ready(std::uint32_t) override;

  bool poll() override { return false; }
  COLLS_ONCE void sweep(time_point now) override;

  engine& engine_;
  detail::descriptor socket_;
  transfer* reading_ = nullptr;
  transfer* writing_ = nullptr;
  time_point deadline_ = never;
  std::uint32_t events_ = 0;
  std::byte peeked_{};
};

/// A listening socket (TCP or AF_UNIX). It accepts a connection only when its owner calls `accept`.
class listener {
 public:
  /// Opens a TCP socket that listens on `address`. If the port of `address` is 0, the operating
  /// system chooses a port. `local` returns the address with the chosen port.
  std::error_code listen(const endpoint& address);
  /// Takes ownership of a socket that is already listening. For example, the launcher can open the
  /// socket and pass it to this process.
  void adopt(detail::descriptor listening) {
    socket_ = detail::fork_guarded_socket(std::move(listening));
  }

  int descriptor() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  endpoint local() const { return detail::socket_endpoint(socket_.get(), &::getsockname); }
  void close() { socket_ = {}; }

  /// Accepts the next waiting connection. Returns an empty descriptor if no connection is waiting
  /// or if the system call fails.
  detail::descriptor accept();

 private:
  detail::fork_guarded_socket socket_;
};

/// A file descriptor that is kept open as a reserve for refusing connections. To send a refusal, a
/// process must first accept the connection. A process that has reached its limit on open files can
/// accept a connection only after it has closed the reserved descriptor.
class spare_descriptor {
 public:
  /// Refuses up to 64 connections that wait in `queue`. First closes the reserved descriptor. Then
  /// accepts the connections one after another. Passes the descriptor of each connection to
  /// `callback`, which may send a refusal, and closes the connection before accepting the next one.
  /// Finally opens a new reserved descriptor.
  template <class Callback>
  void refuse(listener& queue, const Callback& callback) {
    for (int refused = 0; refused < 64; ++refused) {
      reserved_ = {};
      const detail::descriptor socket = queue.accept();
      if (!socket) break;
      callback(socket.get());
    }
    reserved_ = open();
  }

 private:
  static detail::descriptor open() {
    return detail::descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }

  detail::descriptor reserved_ = open();
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/driver/socket.ipp>
#endif
