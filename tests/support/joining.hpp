// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the tests of joining share: an engine, tasks on it, and connections that send raw bytes.

#include <colls/bootstrap/handshake.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/when_all.hpp>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/resource.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace joining {

using colls::endpoint;
using colls::engine;
using colls::errc;
using colls::milliseconds;
using colls::seconds;
using colls::task;
using colls::time_point;

struct bench {
  boost::asio::io_context io;
  std::shared_ptr<engine> owned = engine::get(io.get_executor());
  engine& on = *owned;

  /// The time `pause` from now.
  time_point in(time_point pause) const { return on.now() + pause; }

  template <class Task>
  auto run(Task work) {
    return colls::sync_wait(on, std::move(work));
  }
  /// Runs all tasks concurrently.
  void run_all(std::vector<task<>> work) {
    colls::when_all all(std::move(work));
    colls::sync_wait(on, all);
  }
  /// Runs the engine for a while.
  void turn(time_point pause) { colls::sync_wait(on, on.sleep_until(in(pause))); }
};

inline endpoint loopback(int port = 0) {
  return {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)};
}

/// A port that was free a moment ago.
inline int free_port() {
  colls::listener probe;
  REQUIRE(!probe.listen(loopback()));
  return probe.local().port();
}

/// The failure in an exception, if there is one.
inline std::optional<colls::failure> error_of(const std::exception_ptr& thrown) {
  if (!thrown) return std::nullopt;
  try {
    std::rethrow_exception(thrown);
  } catch (const colls::error& error) {
    return error.record();
  }
}

/// Runs `work` and stores its failure.
inline task<> keep_error(task<> work, std::optional<colls::failure>* into) {
  try {
    co_await work;
  } catch (const colls::error& error) {
    *into = error.record();
  }
}
template <class Value>
task<> keep(task<Value> work, std::optional<Value>* into, std::optional<colls::failure>* failed) {
  try {
    into->emplace(co_await work);
  } catch (const colls::error& error) {
    *failed = error.record();
  }
}

/// A TCP connection without a handshake.
inline task<std::shared_ptr<colls::stream>> connect(engine& on, endpoint address) {
  auto client = std::make_shared<colls::stream>(on);
  client->set_deadline(on.now() + 5 * seconds);
  co_await client->connect(address);
  co_return client;
}

/// Writes the text and ignores errors.
inline task<> say(colls::stream& dest, std::string text) {
  const auto done = co_await colls::detail::attempt(
      dest.write({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
  (void)done;
}

/// Everything that the peer sends until it closes the connection, or until the deadline: then "..."
/// is appended.
inline task<std::string> listen(colls::stream& source, time_point deadline) {
  std::string all;
  source.set_deadline(deadline);
  for (;;) {
    std::byte piece[256];
    std::size_t count = 0;
    const auto done =
        co_await colls::detail::attempt(source.read_some({piece, sizeof piece}, &count));
    if (!done) {
      if (done.ec == errc::timeout) all += "...";
      co_return all;
    }
    all.append(reinterpret_cast<const char*>(piece), count);
  }
}

template <class Bytes>
std::string text(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// While it exists, this process may have open the files that it has open now, and `more` further
/// ones.
class file_limit {
 public:
  explicit file_limit(int more) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    int next = 0;
    for (int free = 0; free <= more; ++next) {
      if (::fcntl(next, F_GETFD) < 0) ++free;
    }
    const rlimit lower{static_cast<rlim_t>(next - 1), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &lower) == 0);
  }
  ~file_limit() { CHECK(::setrlimit(RLIMIT_NOFILE, &before_) == 0); }

 private:
  rlimit before_{};
};

}  // namespace joining
