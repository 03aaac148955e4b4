// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Sockets on an engine, as operations: what joining, the stores and the links' handshakes use.

#include <colls/base/buffer.hpp>
#include <colls/coroutine/task.hpp>
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

inline descriptor open_socket(const endpoint& where) {
  return descriptor(
      ::socket(where.protocol().family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

std::error_code set_congestion(int socket, std::string_view name);

/// Of one end of a socket. What stays inside this host is loopback.
endpoint name_of(int fd, decltype(&::getsockname) ask);

/// What the system says to a name of a congestion control, asked with a socket of its own. A system
/// without such a socket says why when it is needed.
std::error_code try_congestion(std::string_view name);

}  // namespace detail

/// A connected (or connecting) TCP stream. One read and one write may be under way at a time; each
/// ends with an error_code: 0, `errc::timeout` once the stream's deadline is past, `errc::closed`
/// at end of file, or the system's. Destroying it closes the descriptor.
class stream final : engine::watcher, engine::source {
 public:
  explicit stream(engine& on);
  /// Throws where the engine cannot watch one more.
  stream(engine& on, detail::descriptor connected);
  stream(const stream&) = delete;
  stream& operator=(const stream&) = delete;
  ~stream();

  engine& on() { return engine_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  int descriptor() const { return socket_.get(); }
  endpoint remote() const { return detail::name_of(socket_.get(), &::getpeername); }
  endpoint local() const { return detail::name_of(socket_.get(), &::getsockname); }

  /// When reads, writes and connects under way or to come give up.
  void deadline(time_point when) { deadline_ = when; }

  /// Ends what is under way with `errc::cancelled` and closes.
  void close();

  /// Gives the descriptor away; nothing may be under way.
  detail::descriptor release() {
    engine_.unwatch(socket_.get(), *this);
    return std::move(socket_);
  }

  struct transfer {
    transfer(stream* of, mutable_bytes bytes) : owner(of), data(bytes.data), left(bytes.size) {}

    stream* owner;
    std::byte* data;
    std::size_t left;
    std::size_t moved = 0;
    std::size_t* count = nullptr;  // set: end at the first bytes and say how many
    bool peeking = false;          // they stay where they are
    bool connecting = false;
    std::error_code ec;
    completion* done = nullptr;
  };

  /// Fills `into` whole.
  auto read(mutable_bytes into) { return operation<true>({this, into}); }
  /// Reads at least one byte; `*count` says how many.
  auto read_some(mutable_bytes into, std::size_t* count) {
    transfer work(this, into);
    work.count = count;
    return operation<true>(work);
  }
  /// Whether there is something to read, or its end.
  bool has_input() const { return is_ready(POLLIN); }
  /// Waits until there is something to read.
  auto readable() {
    transfer work(this, {&peeked_, 1});
    work.peeking = true;
    return operation<true>(work);
  }
  /// Writes all of `from`.
  auto write(const_bytes from) {
    return operation<false>({this, {const_cast<std::byte*>(from.data), from.size}});
  }
  /// Connects. The local end is chosen by the system.
  auto connect(const endpoint& where) {
    transfer work(this, {});
    work.connecting = true;
    detail::descriptor made = detail::open_socket(where);
    if (!made) {
      work.ec = detail::last_error();
    } else {
      const int result = ::connect(made.get(), where.data(), static_cast<socklen_t>(where.size()));
      // An interrupted connect goes on by itself.
      if (result != 0 && errno != EINPROGRESS && errno != EINTR) {
        work.ec = detail::last_error();
      } else {
        adopt(std::move(made));
      }
    }
    return operation<false>(work);
  }

 private:
  template <bool Reading>
  struct operation {
    transfer work;

    explicit operation(const transfer& what) : work(what) {}
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
      // Within one host a connection is made at once.
      const bool may_step = !work.connecting || work.owner->is_ready(POLLOUT);
      if (may_step && work.owner->template step<Reading>(work)) return true;
      slot() = &work;
      work.owner->interest();
      return false;
    }
    std::error_code result() {
      if (work.count != nullptr) *work.count = work.moved;
      return work.ec;
    }
  };

  void adopt(detail::descriptor socket);

  bool is_ready(short events) const;

  // True: ended, well or badly.
  template <bool Reading>
  bool step(transfer& work) {
    if (work.connecting) {
      int failed = 0;
      socklen_t size = sizeof failed;
      if (::getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &failed, &size) != 0) failed = errno;
      if (failed != 0) work.ec = {failed, std::generic_category()};
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

  void interest();

  void ready(std::uint32_t) override;

  bool poll() override { return false; }
  void sweep(time_point now) override;
  bool pending() const override { return reading_ != nullptr || writing_ != nullptr; }

  engine& engine_;
  detail::descriptor socket_;
  transfer* reading_ = nullptr;
  transfer* writing_ = nullptr;
  time_point deadline_ = never;
  std::uint32_t events_ = 0;
  std::byte peeked_{};
};

/// A listening TCP socket. `accept` gives one connection at a time; it is polled, so that whoever
/// owns it decides how many strangers it lets in.
class listener {
 public:
  /// Port 0 lets the system choose. The port is never released between the choice and its use.
  std::error_code listen(const endpoint& where);
  /// Takes over a socket that listens already (a launcher's).
  void adopt(detail::descriptor listening) { socket_ = detail::kept_socket(std::move(listening)); }

  int descriptor() const { return socket_.get(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  endpoint local() const { return detail::name_of(socket_.get(), &::getsockname); }
  void close() { socket_ = {}; }

  /// A connection that waits in the queue, or nothing.
  detail::descriptor accept();

 private:
  detail::kept_socket socket_;
};

/// A descriptor that is given up to turn connections away at the limit on open files: what cannot be
/// accepted cannot be answered either.
class spare_descriptor {
 public:
  /// Accepts some of the connections that wait, passes each to `tell` and closes it.
  template <class Tell>
  void refuse(listener& from, const Tell& tell) {
    for (int refused = 0; refused < 64; ++refused) {
      kept_ = {};
      const detail::descriptor socket = from.accept();
      if (!socket) break;
      tell(socket.get());
    }
    kept_ = open();
  }

 private:
  static detail::descriptor open() {
    return detail::descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }

  detail::descriptor kept_ = open();
};

/// Tasks that nobody awaits, owned by whoever started them: each lives until it has ended, the rest
/// are withdrawn when the owner goes. An exception ends its task and nothing else.
class task_group {
 public:
  explicit task_group(engine& on) : engine_(on) {}
  task_group(const task_group&) = delete;
  task_group& operator=(const task_group&) = delete;
  ~task_group();

  void start(task<> work);
  int running() const { return running_; }

 private:
  struct entry : completion, detail::recycled {
    entry(task_group& group, task<> it)
        : completion(
              [](completion& self) noexcept {
                auto& ended = static_cast<entry&>(self);
                ended.owner.remove(&ended);
              },
              &group.engine_.queue()),
          owner(group),
          work(std::move(it)) {}
    task_group& owner;
    task<> work;
    entry* next = nullptr;
    entry* prev = nullptr;
  };

  void remove(entry* ended);

  engine& engine_;
  entry* first_ = nullptr;
  int running_ = 0;
};

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/driver/socket.ipp>
#endif
