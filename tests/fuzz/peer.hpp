// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The other end of a connection, played by a fuzzer, which sends any bytes at any time.

#include "input.hpp"

#include <colls/bootstrap/handshake.hpp>
#include <colls/driver/local_socket.hpp>

#include <sys/socket.h>

#include <memory>

namespace fuzz {

/// The engine of all runs. It runs only inside `settle` and `settle_deadlines`.
inline colls::engine& driver() {
  static boost::asio::io_context context{1};
  static const std::shared_ptr<colls::engine> made = [] {
    auto engine = colls::engine::get(context.get_executor());
    engine->enter();
    return engine;
  }();
  return *made;
}

/// Runs the engine until nothing is left to do.
inline void settle() {
  colls::engine& on = driver();
  int turns = 0;
  for (int idle = 0; idle < 2; ++turns) {
    const bool moved = on.poll();
    idle = on.dispatch() || moved ? 0 : idle + 1;
    require(turns < 100'000, "an engine whose peers are silent comes to rest");
  }
}

/// Runs the engine until it has also checked deadlines.
inline void settle_deadlines() {
  for (int turns = 0; turns < 512; ++turns) driver().poll();
  settle();
}

/// One end of a local connection, without colls.
class peer {
 public:
  peer() = default;
  explicit peer(colls::detail::descriptor end) : end_(std::move(end)) {}

  /// A connection: one end for the fuzzer, the other for colls.
  static std::pair<peer, colls::detail::descriptor> pair() {
    int ends[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0,
            "a socket pair");
    return {peer(colls::detail::descriptor(ends[0])), colls::detail::descriptor(ends[1])};
  }

  bool is_open() const { return static_cast<bool>(end_); }
  int descriptor() const { return end_.get(); }
  /// Bytes that the socket does not take at once are lost.
  void send(std::string_view bytes) {
    if (!bytes.empty()) {
      (void)::send(end_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    }
  }
  /// All bytes that have arrived.
  std::string receive() {
    std::string all;
    char part[4096];
    for (ssize_t got = 1; got > 0;) {
      got = ::recv(end_.get(), part, sizeof part, MSG_DONTWAIT);
      if (got > 0) all.append(part, static_cast<std::size_t>(got));
    }
    return all;
  }
  void stop_writing() { ::shutdown(end_.get(), SHUT_WR); }
  void close() { end_ = {}; }
  colls::detail::descriptor release() { return std::move(end_); }

 private:
  colls::detail::descriptor end_;
};

/// A local socket that listens, and connections to it.
class local_address {
 public:
  /// More connections than any fuzzer makes while none is accepted.
  static constexpr int most_waiting = 1024;

  local_address() : listening_(colls::shm::open_local_socket()) {
    sockaddr_un any{};
    any.sun_family = AF_UNIX;  // the system chooses a name
    require(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&any),
                   sizeof(sa_family_t)) == 0 &&
                ::listen(listening_.get(), most_waiting) == 0,
            "a local socket listens");
    size_ = sizeof name_;
    ::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&name_), &size_);
  }

  /// The listening socket, for the code under test. May be called once.
  colls::detail::descriptor take() { return std::move(listening_); }
  colls::detail::descriptor connect() const {
    colls::detail::descriptor made = colls::shm::open_local_socket();
    require(::connect(made.get(), reinterpret_cast<const sockaddr*>(&name_), size_) == 0,
            "a local socket connects");
    return made;
  }

 private:
  colls::detail::descriptor listening_;
  sockaddr_un name_{};
  socklen_t size_ = 0;
};

/// The complete handshake of the dialling side, as a peer with the secret makes it.
inline peer authenticate(const local_address& address, const colls::hello& mine,
                         const colls::secret& key) {
  using namespace colls;
  auto link = std::make_unique<stream>(driver(), address.connect());
  bool accepted = false;
  {
    task_group work(driver());
    work.start([](stream& at, const hello& as, const secret& shared, bool& into) -> task<> {
      co_await prove(at, as, shared);
      into = co_await await_verdict(at, as) == verdict::accepted;
    }(*link, mine, key, accepted));
    settle();
  }
  return accepted ? peer(link->release()) : peer();
}

}  // namespace fuzz
