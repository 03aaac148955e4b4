// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/authenticating_listener.hpp>

#include "../support/joining.hpp"

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// Every epoll_ctl call of the program goes through this function.
static int refused_watches = 0;
extern "C" int epoll_ctl(int set, int action, int fd, epoll_event* event) noexcept {
  if (action == EPOLL_CTL_ADD && refused_watches > 0) {
    --refused_watches;
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_epoll_ctl, set, action, fd, event));
}

// Every accept4 call of the program goes through this function.
static int accepts = 0;
extern "C" int accept4(int fd, sockaddr* peer, socklen_t* size, int flags) {
  ++accepts;
  return static_cast<int>(::syscall(SYS_accept4, fd, peer, size, flags));
}

using namespace joining;
using colls::hello;
using colls::secret;

namespace {

hello of_rank(int rank) {
  hello mine;
  mine.job = 7;
  mine.rank = rank;
  mine.world = 4;
  return mine;
}

int open_descriptors() {
  int count = 0;
  DIR* const all = ::opendir("/proc/self/fd");
  while (::readdir(all) != nullptr) ++count;
  ::closedir(all);
  return count;
}

/// Accepts every authenticated peer and records its rank.
struct recorder : colls::authenticating_listener::handler {
  explicit recorder(bench& at, time_point timeout = 5 * seconds) : tasks(at.on) {
    REQUIRE(!listener.listen(loopback()));
    guard.emplace(at.on, listener, of_rank(0), secret("right"), *this, timeout);
  }
  void handle_peer(std::unique_ptr<colls::stream> connection, const hello& peer) override {
    ranks.push_back(peer.rank);
    connections.push_back(std::move(connection));
    tasks.start(colls::give_verdict(*connections.back(), colls::verdict::accepted));
  }
  colls::listener listener;
  std::vector<int> ranks;
  std::vector<std::unique_ptr<colls::stream>> connections;
  std::optional<colls::authenticating_listener> guard;
  colls::task_group tasks;
};

task<> authenticate(engine& on, endpoint where, int rank, std::string text, int* accepted_count) {
  const hello mine = of_rank(rank);
  const secret shared(text);
  colls::stream link(on);
  link.set_deadline(on.now() + 10 * seconds);
  co_await link.connect(where);
  co_await colls::prove(link, mine, shared);
  co_await colls::await_verdict(link, mine);
  ++*accepted_count;
}

/// Dials again after an eviction, as ranks do, at most `attempts` times. Increments
/// `*accepted_count` if it is accepted.
task<> authenticate_with_retries(engine& on, endpoint where, int rank, int attempts,
                                 int* accepted_count) {
  for (const int before = *accepted_count; *accepted_count == before && attempts > 0; --attempts) {
    std::optional<colls::failure> failed;
    co_await keep_error(authenticate(on, where, rank, "right", accepted_count), &failed);
    if (failed && failed->code != errc::unreachable) throw colls::error(*failed);
  }
}

/// Peers that send `greeting`, hold the connection, and reconnect at once when it is closed.
class flood {
 public:
  flood(engine& on, endpoint where, std::string greeting)
      : on_(on), where_(where), greeting_(greeting), all_(on) {}
  void start(int count) {
    for (int i = 0; i < count; ++i) all_.start(hold());
  }
  int eviction_count() const { return eviction_count_; }

 private:
  task<> hold() {
    for (;;) {
      const auto link = co_await connect(on_, where_);
      co_await joining::say(*link, greeting_);
      (void)co_await joining::listen(*link, on_.now() + 100 * seconds);
      ++eviction_count_;
    }
  }
  engine& on_;
  endpoint where_;
  std::string greeting_;
  int eviction_count_ = 0;
  colls::task_group all_;
};

}  // namespace

TEST_CASE("a child of the process does not listen, neither at an own nor at an adopted socket") {
  colls::listener own;
  REQUIRE(!own.listen(joining::loopback()));
  colls::listener adopted;
  adopted.adopt(colls::detail::descriptor(::dup(own.descriptor())));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto listens = [](int fd) {
      int is = 0;
      socklen_t size = sizeof is;
      return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &is, &size) == 0 && is != 0;
    };
    ::_exit((listens(own.descriptor()) ? 1 : 0) + (listens(adopted.descriptor()) ? 2 : 0));
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a listener accepts peers that prove the secret, several at once") {
  bench at;
  recorder here(at);
  int accepted_count = 0;
  std::vector<task<>> work;
  for (int rank = 0; rank < 4; ++rank) {
    work.push_back(authenticate(at.on, here.listener.local(), rank, "right", &accepted_count));
  }
  at.run_all(std::move(work));
  CHECK(accepted_count == 4);
  std::sort(here.ranks.begin(), here.ranks.end());
  CHECK(here.ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(here.guard->pending_count() == 0);
  CHECK(here.guard->rejected_count() == 0);
}

TEST_CASE("a peer that sends nothing, or one byte at a time, is closed after the timeout") {
  bench at;
  recorder here(at, 300 * milliseconds);
  const auto silent = at.run(connect(at.on, here.listener.local()));
  const auto slow = at.run(connect(at.on, here.listener.local()));
  const auto drip = [](engine& on, colls::stream& to) -> task<> {
    const std::string message = text(colls::write_hello(of_rank(1)));
    for (const char letter : message) {
      co_await say(to, std::string(1, letter));
      co_await on.sleep_until(on.now() + 50 * milliseconds);
      if (!to.is_open()) co_return;
    }
  };
  colls::task_group background(at.on);
  background.start(drip(at.on, *slow));
  CHECK(at.run(joining::listen(*silent, at.in(3 * seconds))).empty());
  CHECK(at.run(joining::listen(*slow, at.in(3 * seconds))).empty());
  CHECK(here.guard->rejected_count() == 2);
  CHECK(here.guard->pending_count() == 0);
}

TEST_CASE("the timeout counts only while the engine runs") {
  bench at;
  recorder here(at, 500 * milliseconds);
  const auto late = at.run(connect(at.on, here.listener.local()));
  at.turn(100 * milliseconds);
  CHECK(here.guard->pending_count() == 1);
  ::usleep(1'000'000);  // this rank computes
  at.turn(1 * milliseconds);
  CHECK(here.guard->pending_count() == 1);
  at.turn(700 * milliseconds);
  CHECK(here.guard->pending_count() == 0);
}

TEST_CASE("a connection that epoll refuses to watch is closed, and listening resumes") {
  bench at;
  recorder here(at, 300 * milliseconds);
  const auto silent = at.run(connect(at.on, here.listener.local()));
  at.turn(10 * milliseconds);
  CHECK(here.guard->pending_count() == 1);
  const auto other = at.run(connect(at.on, here.listener.local()));
  refused_watches = 1;
  CHECK(at.run(joining::listen(*other, at.in(3 * seconds))).empty());
  CHECK(refused_watches == 0);
  int accepted_count = 0;
  at.run(authenticate(at.on, here.listener.local(), 1, "right", &accepted_count));
  CHECK(accepted_count == 1);
  at.turn(400 * milliseconds);
  CHECK(here.guard->pending_count() == 0);
}

TEST_CASE("many silent connections cost a bounded number of sockets and keep no rank out") {
  bench at;
  recorder here(at);
  const int before = open_descriptors();
  std::vector<std::shared_ptr<colls::stream>> crowd;
  int accepted_count = 0;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(at.run(connect(at.on, here.listener.local())));
    if (i % 100 == 99)
      at.run(authenticate_with_retries(at.on, here.listener.local(), 1, 20, &accepted_count));
  }
  at.turn(50 * milliseconds);
  CHECK(accepted_count == 3);
  CHECK(here.guard->pending_count() <= here.guard->max_pending());
  CHECK(open_descriptors() - before - 300 <= here.guard->max_pending() + 3);
}

TEST_CASE("peers with a valid HELLO that reconnect at once keep no rank out") {
  bench at;
  recorder here(at);
  hello mine = of_rank(1);
  mine.has_secret = true;
  flood crowd(at.on, here.listener.local(), text(colls::write_hello(mine)));
  crowd.start(200);
  int accepted_count = 0;
  for (int i = 0; i < 20; ++i) {
    at.run(authenticate_with_retries(at.on, here.listener.local(), 2, 50, &accepted_count));
    CHECK(accepted_count == i + 1);
    CHECK(here.guard->pending_count() <= here.guard->max_pending());
  }
  CHECK(here.ranks == std::vector<int>(20, 2));
  CHECK(crowd.eviction_count() > 100);
}

TEST_CASE("an evicted connection is chosen at random, and the rate of evictions is bounded") {
  bench at;
  recorder here(at, 100 * seconds);
  const int limit = here.guard->max_pending();
  std::vector<std::shared_ptr<colls::stream>> all;
  for (int i = 0; i < limit; ++i) all.push_back(at.run(connect(at.on, here.listener.local())));
  at.turn(50 * milliseconds);
  CHECK(here.guard->pending_count() == limit);
  const time_point began = at.on.now();
  for (int i = 0; i < limit / 2; ++i) all.push_back(at.run(connect(at.on, here.listener.local())));
  at.turn(100 * milliseconds);
  CHECK(here.guard->pending_count() == limit);
  std::vector<int> closed;
  for (int i = 0; i < limit; ++i) {
    char byte = 0;
    if (::recv(all[static_cast<std::size_t>(i)]->descriptor(), &byte, 1, MSG_DONTWAIT) == 0) {
      closed.push_back(i);
    }
  }
  CHECK(here.guard->rejected_count() == static_cast<std::uint64_t>(limit / 2));
  REQUIRE(closed.size() > 8);
  // The evicted connections are neither only the oldest nor only the newest.
  CHECK(closed.front() < limit / 2);
  CHECK(closed.back() >= limit / 2);
  // Several hundred more connections are not all accepted at once.
  for (int i = 0; i < 10 * limit; ++i) all.push_back(at.run(connect(at.on, here.listener.local())));
  at.turn(20 * milliseconds);
  const double passed = static_cast<double>(at.on.now() - began) * 1e-9;
  CHECK(static_cast<double>(here.guard->rejected_count()) < 1000 * passed + 2 * limit);
}

TEST_CASE("at the limit on open files each peer is refused, with pauses in between") {
  bench at;
  recorder here(at);
  std::vector<colls::detail::descriptor> outside;
  const endpoint where = here.listener.local();
  for (int i = 0; i < 5; ++i) {
    outside.push_back(colls::detail::open_socket(where));
    (void)::connect(outside.back().get(), where.data(), static_cast<socklen_t>(where.size()));
  }
  {
    const file_limit none(0);
    accepts = 0;
    at.turn(500 * milliseconds);
    CHECK(accepts < 50);
    CHECK(here.guard->pending_count() == 0);
    CHECK(here.guard->accept_error() == std::strerror(EMFILE));
    const auto expected =
        colls::write_hello(colls::refusal(colls::connection_purpose::no_descriptor, 0));
    for (const colls::detail::descriptor& each : outside) {
      colls::hello_bytes received{};
      CHECK(::recv(each.get(), received.data(), received.size(), MSG_DONTWAIT) == 64);
      CHECK(received == expected);
    }
  }
  int accepted_count = 0;
  at.run(authenticate(at.on, where, 1, "right", &accepted_count));
  CHECK(accepted_count == 1);
}

TEST_CASE("at the limit on open files a pending connection is evicted") {
  bench at;
  recorder here(at);
  std::vector<std::shared_ptr<colls::stream>> crowd;
  for (int i = 0; i < 10; ++i) crowd.push_back(at.run(connect(at.on, here.listener.local())));
  at.turn(10 * milliseconds);
  CHECK(here.guard->pending_count() == 10);
  const file_limit one(1);  // for the rank's own end of its connection
  int accepted_count = 0;
  at.run(authenticate_with_retries(at.on, here.listener.local(), 1, 20, &accepted_count));
  CHECK(accepted_count == 1);
}

TEST_CASE("garbage and wrong secrets are counted, others are accepted meanwhile") {
  bench at;
  recorder here(at);
  for (int i = 0; i < 20; ++i) {
    const auto peer = at.run(connect(at.on, here.listener.local()));
    at.run(say(*peer, "GET / HTTP/1.1\r\n\r\n" + std::string(64, '.')));
    CHECK(at.run(joining::listen(*peer, at.in(3 * seconds))).empty());
  }
  CHECK(here.guard->rejected_count() == 20);
  int accepted_count = 0;
  std::optional<colls::failure> failed;
  at.run(
      keep_error(authenticate(at.on, here.listener.local(), 1, "wrong", &accepted_count), &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
  at.run(authenticate(at.on, here.listener.local(), 1, "right", &accepted_count));
  CHECK(accepted_count == 1);
  CHECK(here.ranks == std::vector<int>{1});
}

TEST_CASE("ten thousand connections that are closed at once keep no rank out") {
  bench at;
  recorder here(at);
  int accepted_count = 0;
  for (int i = 0; i < 10'000; ++i) {
    const colls::detail::descriptor socket = colls::detail::open_socket(loopback());
    const endpoint where = here.listener.local();
    (void)::connect(socket.get(), where.data(), static_cast<socklen_t>(where.size()));
    if (i % 16 == 0) at.on.poll();
    if (i % 2500 == 0) at.run(authenticate_with_retries(at.on, where, 2, 20, &accepted_count));
  }
  CHECK(accepted_count == 4);
  // Connections that found the backlog full were never accepted.
  at.turn(500 * milliseconds);
  CHECK(here.guard->pending_count() == 0);
  CHECK(here.guard->rejected_count() > 1000);
}
