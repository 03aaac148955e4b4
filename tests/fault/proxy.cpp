// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// A proxy between ranks that are processes stalls, delays, cuts, changes and resets connections, at
// moments drawn from a seed. Every run ends in time, with right results or an error.
//
// PROXY_SEEDS=N runs N seeds, PROXY_SEED=S runs that one.
#include "processes.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <list>
#include <new>
#include <random>
#include <thread>

namespace {

using namespace processes;
using namespace std::chrono_literals;

/// Shared by all processes of a run: the port of the proxy, and the intended port of each
/// connection to it, indexed by the port that it comes from.
struct redirection {
  std::atomic<int> proxy{0};
  std::array<std::atomic<std::uint16_t>, 65536> wanted{};
};
redirection* shared = nullptr;

}  // namespace

// Replaces the function of the C library, so that every rank connects through the proxy.
extern "C" int connect(int socket, const sockaddr* where, socklen_t size) {
  const auto directly = [&](const sockaddr* to, socklen_t length) {
    return static_cast<int>(::syscall(SYS_connect, socket, to, length));
  };
  int type = 0;
  socklen_t type_size = sizeof type;
  if (shared == nullptr || shared->proxy == 0 || where->sa_family != AF_INET ||
      ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &type_size) != 0 || type != SOCK_STREAM) {
    return directly(where, size);
  }
  sockaddr_in target{};
  std::memcpy(&target, where, sizeof target);
  sockaddr_in mine{};
  mine.sin_family = AF_INET;
  mine.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t mine_size = sizeof mine;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&mine), sizeof mine) != 0 ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&mine), &mine_size) != 0) {
    return -1;
  }
  shared->wanted[ntohs(mine.sin_port)] = ntohs(target.sin_port);
  target.sin_port = htons(static_cast<std::uint16_t>(shared->proxy));
  return directly(reinterpret_cast<const sockaddr*>(&target), sizeof target);
}

namespace {

enum class fault { none, stall, delay, truncate, flip, reset, half_close, trickle };
constexpr const char* fault_names[] = {"none", "stall", "delay",      "truncate",
                                       "flip", "reset", "half-close", "one byte a second"};
constexpr int faults = 7;

/// The fault of one connection, after a number of bytes in one direction.
struct fault_plan {
  fault what = fault::none;
  bool to_store = false;
  int connection = 0;  // its number among those to the store, or between ranks
  bool answers = false;
  std::size_t after = 0;
  unsigned bit = 0;
  bool checksums = false;

  explicit fault_plan(unsigned seed) {
    std::mt19937 random(seed);
    const auto draw = [&](std::size_t below) { return static_cast<std::size_t>(random()) % below; };
    // Each fault on each kind of connection in turn.
    what = static_cast<fault>(1 + seed % faults);
    to_store = seed / faults % 2 != 0;
    connection = static_cast<int>(draw(3));
    answers = draw(2) != 0;
    const std::size_t most = to_store ? 2000 : 300'000;
    after = draw(std::size_t{1} << draw(to_store ? 12 : 19)) % most;
    bit = static_cast<unsigned>(draw(8));
    checksums = what == fault::flip || draw(2) != 0;
  }
  std::string text() const {
    return std::string(fault_names[static_cast<int>(what)]) + " after " + std::to_string(after) +
           " bytes " + (answers ? "of the answers on" : "of") + " connection " +
           std::to_string(connection) + (to_store ? " to the store" : " between ranks") +
           (checksums ? ", with checksums" : "");
  }
};

class proxy {
 public:
  explicit proxy(const fault_plan& plan) : plan_(plan) {
    REQUIRE(!listener_.listen({boost::asio::ip::make_address("127.0.0.1"), 0}));
    shared->proxy = listener_.local().port();
  }
  proxy(const proxy&) = delete;
  ~proxy() { stop(); }
  /// To be called after all processes were forked.
  void start(int store) {
    store_ = store;
    work_ = std::thread([this] {
      while (!ended_) poll_once();
    });
  }
  void stop() {
    ended_ = true;
    if (work_.joinable()) work_.join();
    shared->proxy = 0;
  }
  bool has_injected() const { return injected_; }

 private:
  using fd = colls::detail::descriptor;
  struct pair;
  /// One direction of a connection.
  struct pipe {
    int from = -1;
    int to = -1;
    std::string held;
    std::size_t passed = 0;
    bool ended = false;  // its source has ended
    bool done = false;   // and no more bytes are sent
    bool planned = false;
    double due = 0;  // the time from which the next byte may be sent
  };
  struct pair {
    fd one;
    fd other;
    pipe ways[2];
    bool is_over() const { return ways[0].done && ways[1].done; }
  };

  void poll_once() {
    const int listener = listener_.descriptor();
    while (fd socket{::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)}) {
      take(std::move(socket));
    }
    std::vector<pollfd> all{{listener, POLLIN, 0}};
    for (pair& each : pairs_) {
      for (pipe& way : each.ways) {
        if (!way.ended && way.held.size() < most_held) all.push_back({way.from, POLLIN, 0});
      }
    }
    ::poll(all.data(), all.size(), 2);
    for (pair& each : pairs_) {
      for (pipe& way : each.ways) move(each, way);
    }
    pairs_.remove_if([](const pair& each) { return each.is_over(); });
  }

  void take(fd come) {
    sockaddr_in from{};
    socklen_t size = sizeof from;
    if (::getpeername(come.get(), reinterpret_cast<sockaddr*>(&from), &size) != 0) return;
    const int target = shared->wanted[ntohs(from.sin_port)];
    fd out(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    where.sin_port = htons(static_cast<std::uint16_t>(target));
    if (::syscall(SYS_connect, out.get(), &where, sizeof where) != 0) return reset(come);
    ::fcntl(out.get(), F_SETFL, O_NONBLOCK);
    pair& made = pairs_.emplace_back();
    made.ways[0].from = made.ways[1].to = come.get();
    made.ways[0].to = made.ways[1].from = out.get();
    made.one = std::move(come);
    made.other = std::move(out);
    int& number = target == store_ ? to_store_ : between_;
    if (plan_.to_store == (target == store_) && number == plan_.connection) {
      made.ways[plan_.answers ? 1 : 0].planned = true;
    }
    ++number;
  }
  static void reset(fd& socket) {
    const linger at_once{1, 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket = {};
  }
  static void end(pair& which, bool by_reset) {
    if (by_reset) reset(which.one), reset(which.other);
    for (pipe& way : which.ways) way.ended = way.done = true;
    which.one = {};
    which.other = {};
  }

  void move(pair& of, pipe& way) {
    if (way.done) return;
    char some[16384];
    while (!way.ended && way.held.size() < most_held) {
      const ssize_t got = ::recv(way.from, some, sizeof some, MSG_DONTWAIT);
      if (got < 0 && errno == EAGAIN) break;
      if (got < 0) return end(of, true);
      if (got == 0) way.ended = true;
      way.held.append(some, static_cast<std::size_t>(got));
    }
    const std::size_t may = allowed(of, way);
    if (way.done) return;
    if (may > 0) {
      const ssize_t sent = ::send(way.to, way.held.data(), may, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0 && errno != EAGAIN) return end(of, true);
      if (sent > 0) {
        way.held.erase(0, static_cast<std::size_t>(sent));
        way.passed += static_cast<std::size_t>(sent);
      }
    }
    if (way.ended && way.held.empty() && !holds_back(way)) {
      ::shutdown(way.to, SHUT_WR);
      way.done = true;
    }
  }
  // A direction that stalls is not closed, either.
  bool holds_back(const pipe& way) const {
    return way.planned && injected_ && plan_.what == fault::stall;
  }

  // Returns how many of the held bytes may be sent now.
  std::size_t allowed(pair& of, pipe& way) {
    const std::size_t held = way.held.size();
    if (!way.planned) return held;
    if (way.passed < plan_.after) return std::min(held, plan_.after - way.passed);
    if (held == 0 && plan_.what != fault::truncate && plan_.what != fault::reset &&
        plan_.what != fault::half_close) {
      return 0;
    }
    const bool first = !injected_.exchange(true);
    switch (plan_.what) {
      case fault::none:
        break;
      case fault::stall:
        return 0;
      case fault::delay:
        if (first) way.due = now() + 0.3;
        return now() < way.due ? 0 : held;
      case fault::truncate:
        end(of, false);
        return 0;
      case fault::reset:
        end(of, true);
        return 0;
      case fault::flip:
        if (first) way.held[0] = static_cast<char>(way.held[0] ^ (1 << plan_.bit));
        return held;
      case fault::half_close:
        ::shutdown(way.to, SHUT_WR);
        way.done = true;
        return 0;
      case fault::trickle:
        if (now() < way.due) return 0;
        way.due = now() + 1;
        return 1;
    }
    return held;
  }

  static constexpr std::size_t most_held = 256 * 1024;

  fault_plan plan_;
  colls::listener listener_;
  int store_ = 0;
  int to_store_ = 0;
  int between_ = 0;
  std::atomic<bool> injected_{false};
  std::atomic<bool> ended_{false};
  std::list<pair> pairs_;
  std::thread work_;
};

constexpr int wrong_data = 3;

/// Makes all_reduces, short and long, and sends messages along a ring; a process that gets wrong
/// data ends with `wrong_data`.
task<> work(colls::world& world, const line&) {
  const colls::options limited{.timeout = 2s};
  const int size = world.size();
  const auto next = (world.rank() + 1) % size;
  const auto before = (world.rank() + size - 1) % size;
  for (int turn = 0; turn < 4; ++turn) {
    const std::size_t counts[] = {2, 700, 30'000};
    for (const std::size_t count : counts) {
      std::vector<int> data(count);
      for (std::size_t i = 0; i < count; ++i) data[i] = static_cast<int>(i) + turn + world.rank();
      const std::vector<int> mine = data;
      std::vector<int> theirs(count);
      co_await world.send_recv(mine, next, theirs, before, 1, limited);
      co_await world.all_reduce(data, colls::plus{}, limited);
      for (std::size_t i = 0; i < count; ++i) {
        const int alone = static_cast<int>(i) + turn;
        if (theirs[i] != alone + before || data[i] != size * alone + size * (size - 1) / 2) {
          ::_exit(wrong_data);
        }
      }
    }
  }
}

/// Bytes of HELLO, proof and verdict.
constexpr std::size_t handshake = 64 + 32 + 16;

/// Seconds of joining, an operation and leaving, each of which has a bound, and some to spare.
constexpr double longest = 3 + 2 + 3 + 5;

/// Runs one seed and returns whether the fault was injected.
bool run(unsigned seed) {
  const fault_plan plan(seed);
  const std::string planned = plan.text();
  INFO("PROXY_SEED=", seed, ": ", planned);
  colls::config cfg;
  cfg.transport = "tcp";
  cfg.secret = "a secret that the proxy does not know";
  cfg.checksum = plan.checksums;
  cfg.join_timeout = 3s;
  cfg.timeout = 3s;
  proxy between(plan);
  job all(3, &work, cfg);
  between.start(all.port());
  const double began = now();
  bool right = true;
  for (int rank = 0; rank < 3; ++rank) {
    const ending& end = all.wait(rank, longest - (now() - began));
    CAPTURE(rank);
    CAPTURE(all.log(rank));
    CHECK((end.status == 0 || end.status == 1));
    right &= end.status == 0;
    if (end.status == 1) CHECK(contains(all.log(rank), "colls: "));
  }
  between.stop();
  // After the handshake only checksums detect it.
  if (plan.what == fault::flip && plan.after >= handshake && !right) {
    std::string told;
    for (int rank = 0; rank < 3; ++rank) told += all.log(rank);
    CAPTURE(told);
    CHECK(contains(told, "protocol_error"));
    CHECK(contains(told, "checksum"));
  }
  // Without a fault, and after a delay, no rank fails.
  if (!between.has_injected() || plan.what == fault::delay) CHECK(right);
  return between.has_injected();
}

}  // namespace

TEST_CASE("whatever a proxy does to a connection, ranks end in time, right or with an error") {
  void* const memory = ::mmap(nullptr, sizeof(redirection), PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  shared = new (memory) redirection;
  if (const char* const one = std::getenv("PROXY_SEED")) {
    run(static_cast<unsigned>(std::strtoul(one, nullptr, 10)));
  } else {
    const char* const given = std::getenv("PROXY_SEEDS");
    const unsigned seeds =
        given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 2 * faults;
    unsigned injected = 0;
    for (unsigned seed = 0; seed < seeds; ++seed) injected += run(seed);
    MESSAGE(injected, " of ", seeds, " faults were injected");
    CHECK(injected >= seeds / 2);
  }
  shared = nullptr;
}
