// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/authenticating_listener.hpp>

#include "../support/joining.hpp"

#include <dirent.h>
#include <sys/syscall.h>
#include <sys/wait.h>

// Every epoll_ctl of the program comes through here.
static int refused_watches = 0;
extern "C" int epoll_ctl(int set, int action, int fd, epoll_event* event) noexcept {
  if (action == EPOLL_CTL_ADD && refused_watches > 0) {
    --refused_watches;
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_epoll_ctl, set, action, fd, event));
}

// Every accept4 too.
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

/// A door that gives everybody a good verdict and remembers the ranks.
struct house : colls::door::host {
  explicit house(bench& at, time_point patience = 5 * seconds) : tasks(at.on) {
    REQUIRE(!place.listen(loopback()));
    guard.emplace(at.on, place, of_rank(0), secret("right"), *this, patience);
  }
  void enter(std::unique_ptr<colls::stream> guest, const hello& who) override {
    ranks.push_back(who.rank);
    guests.push_back(std::move(guest));
    tasks.start(colls::give_verdict(*guests.back(), colls::verdict::accepted));
  }
  colls::listener place;
  std::vector<int> ranks;
  std::vector<std::unique_ptr<colls::stream>> guests;
  std::optional<colls::door> guard;
  colls::task_group tasks;
};

task<> come_in(engine& on, endpoint where, int rank, std::string text, int* came) {
  const hello mine = of_rank(rank);
  const secret shared(text);
  colls::stream link(on);
  link.deadline(on.now() + 10 * seconds);
  co_await link.connect(where);
  co_await colls::prove(link, mine, shared);
  co_await colls::await_verdict(link, mine);
  ++*came;
}

/// Dials again when it was dropped, as ranks do, at most so often; counts itself if it came in.
task<> come_in_in_the_end(engine& on, endpoint where, int rank, int attempts, int* came) {
  for (const int before = *came; *came == before && attempts > 0; --attempts) {
    std::optional<colls::failure> failed;
    co_await keep_error(come_in(on, where, rank, "right", came), &failed);
    if (failed && failed->code != errc::unreachable) throw colls::error(*failed);
  }
}

/// Strangers that say this, hold, and come again at once when they are put out.
class flood {
 public:
  flood(engine& on, endpoint where, std::string says)
      : on_(on), where_(where), says_(says), all_(on) {}
  void start(int count) {
    for (int i = 0; i < count; ++i) all_.start(hold());
  }
  int put_out() const { return put_out_; }

 private:
  task<> hold() {
    for (;;) {
      const auto link = co_await connect(on_, where_);
      co_await joining::say(*link, says_);
      (void)co_await joining::listen(*link, on_.now() + 100 * seconds);
      ++put_out_;
    }
  }
  engine& on_;
  endpoint where_;
  std::string says_;
  int put_out_ = 0;
  colls::task_group all_;
};

}  // namespace

TEST_CASE("a child of the process does not listen, whoever opened the socket and before any door") {
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

TEST_CASE("a door lets in who proves the secret, several at once") {
  bench at;
  house here(at);
  int came = 0;
  std::vector<task<>> work;
  for (int rank = 0; rank < 4; ++rank) {
    work.push_back(come_in(at.on, here.place.local(), rank, "right", &came));
  }
  at.run_all(std::move(work));
  CHECK(came == 4);
  std::sort(here.ranks.begin(), here.ranks.end());
  CHECK(here.ranks == std::vector<int>{0, 1, 2, 3});
  CHECK(here.guard->pending_strangers() == 0);
  CHECK(here.guard->turned_away() == 0);
}

TEST_CASE("who says nothing, or one byte at a time, is closed after the patience") {
  bench at;
  house here(at, 300 * milliseconds);
  const auto silent = at.run(connect(at.on, here.place.local()));
  const auto slow = at.run(connect(at.on, here.place.local()));
  const auto drip = [](engine& on, colls::stream& to) -> task<> {
    const std::string words = text(colls::write_hello(of_rank(1)));
    for (const char letter : words) {
      co_await say(to, std::string(1, letter));
      co_await on.sleep_until(on.now() + 50 * milliseconds);
      if (!to.is_open()) co_return;
    }
  };
  colls::task_group background(at.on);
  background.start(drip(at.on, *slow));
  CHECK(at.run(joining::listen(*silent, at.in(3 * seconds))).empty());
  CHECK(at.run(joining::listen(*slow, at.in(3 * seconds))).empty());
  CHECK(here.guard->turned_away() == 2);
  CHECK(here.guard->pending_strangers() == 0);
}

TEST_CASE("the patience counts only while the engine turns") {
  bench at;
  house here(at, 500 * milliseconds);
  const auto late = at.run(connect(at.on, here.place.local()));
  at.turn(100 * milliseconds);
  CHECK(here.guard->pending_strangers() == 1);
  ::usleep(1'000'000);  // this rank computes
  at.turn(1 * milliseconds);
  CHECK(here.guard->pending_strangers() == 1);
  at.turn(700 * milliseconds);
  CHECK(here.guard->pending_strangers() == 0);
}

TEST_CASE("a stranger whom the system does not let it watch is let go, and the door opens again") {
  bench at;
  house here(at, 300 * milliseconds);
  const auto silent = at.run(connect(at.on, here.place.local()));
  at.turn(10 * milliseconds);
  CHECK(here.guard->pending_strangers() == 1);
  const auto other = at.run(connect(at.on, here.place.local()));
  refused_watches = 1;
  CHECK(at.run(joining::listen(*other, at.in(3 * seconds))).empty());
  CHECK(refused_watches == 0);
  int came = 0;
  at.run(come_in(at.on, here.place.local(), 1, "right", &came));
  CHECK(came == 1);
  at.turn(400 * milliseconds);
  CHECK(here.guard->pending_strangers() == 0);
}

TEST_CASE("a crowd of silent strangers costs a bounded number of sockets and keeps nobody out") {
  bench at;
  house here(at);
  const int before = open_descriptors();
  std::vector<std::shared_ptr<colls::stream>> crowd;
  int came = 0;
  for (int i = 0; i < 300; ++i) {
    crowd.push_back(at.run(connect(at.on, here.place.local())));
    if (i % 100 == 99) at.run(come_in_in_the_end(at.on, here.place.local(), 1, 20, &came));
  }
  at.turn(50 * milliseconds);
  CHECK(came == 3);
  CHECK(here.guard->pending_strangers() <= here.guard->most_strangers());
  CHECK(open_descriptors() - before - 300 <= here.guard->most_strangers() + 3);
}

TEST_CASE("strangers that hold a right HELLO and come again at once keep no rank out") {
  bench at;
  house here(at);
  hello mine = of_rank(1);
  mine.has_secret = true;
  flood crowd(at.on, here.place.local(), text(colls::write_hello(mine)));
  crowd.start(200);
  int came = 0;
  for (int i = 0; i < 20; ++i) {
    at.run(come_in_in_the_end(at.on, here.place.local(), 2, 50, &came));
    CHECK(came == i + 1);
    CHECK(here.guard->pending_strangers() <= here.guard->most_strangers());
  }
  CHECK(here.ranks == std::vector<int>(20, 2));
  CHECK(crowd.put_out() > 100);
}

TEST_CASE("a stranger that loses its place is drawn at random, and places change hands slowly") {
  bench at;
  house here(at, 100 * seconds);
  const int most = here.guard->most_strangers();
  std::vector<std::shared_ptr<colls::stream>> all;
  for (int i = 0; i < most; ++i) all.push_back(at.run(connect(at.on, here.place.local())));
  at.turn(50 * milliseconds);
  CHECK(here.guard->pending_strangers() == most);
  const time_point began = at.on.now();
  for (int i = 0; i < most / 2; ++i) all.push_back(at.run(connect(at.on, here.place.local())));
  at.turn(100 * milliseconds);
  CHECK(here.guard->pending_strangers() == most);
  std::vector<int> closed;
  for (int i = 0; i < most; ++i) {
    char byte = 0;
    if (::recv(all[static_cast<std::size_t>(i)]->descriptor(), &byte, 1, MSG_DONTWAIT) == 0) {
      closed.push_back(i);
    }
  }
  CHECK(here.guard->turned_away() == static_cast<std::uint64_t>(most / 2));
  REQUIRE(closed.size() > 8);
  // Neither the oldest nor the newest: both halves have some.
  CHECK(closed.front() < most / 2);
  CHECK(closed.back() >= most / 2);
  // A few hundred more do not all come in at once.
  for (int i = 0; i < 10 * most; ++i) all.push_back(at.run(connect(at.on, here.place.local())));
  at.turn(20 * milliseconds);
  const double passed = static_cast<double>(at.on.now() - began) * 1e-9;
  CHECK(static_cast<double>(here.guard->turned_away()) < 1000 * passed + 2 * most);
}

TEST_CASE("at the limit on open files each stranger is told, the door rests in between") {
  bench at;
  house here(at);
  std::vector<colls::detail::descriptor> outside;
  const endpoint where = here.place.local();
  for (int i = 0; i < 5; ++i) {
    outside.push_back(colls::detail::open_socket(where));
    (void)::connect(outside.back().get(), where.data(), static_cast<socklen_t>(where.size()));
  }
  {
    const file_limit none(0);
    accepts = 0;
    at.turn(500 * milliseconds);
    CHECK(accepts < 50);
    CHECK(here.guard->pending_strangers() == 0);
    CHECK(here.guard->lack() == std::strerror(EMFILE));
    const auto told = colls::write_hello(colls::refusal(colls::purpose::no_descriptor, 0));
    for (const colls::detail::descriptor& each : outside) {
      colls::hello_bytes heard{};
      CHECK(::recv(each.get(), heard.data(), heard.size(), MSG_DONTWAIT) == 64);
      CHECK(heard == told);
    }
  }
  int came = 0;
  at.run(come_in(at.on, where, 1, "right", &came));
  CHECK(came == 1);
}

TEST_CASE("at the limit on open files a stranger that holds gives way") {
  bench at;
  house here(at);
  std::vector<std::shared_ptr<colls::stream>> crowd;
  for (int i = 0; i < 10; ++i) crowd.push_back(at.run(connect(at.on, here.place.local())));
  at.turn(10 * milliseconds);
  CHECK(here.guard->pending_strangers() == 10);
  const file_limit one(1);  // the rank's own end
  int came = 0;
  at.run(come_in_in_the_end(at.on, here.place.local(), 1, 20, &came));
  CHECK(came == 1);
}

TEST_CASE("garbage and wrong secrets are counted, others come in meanwhile") {
  bench at;
  house here(at);
  for (int i = 0; i < 20; ++i) {
    const auto stranger = at.run(connect(at.on, here.place.local()));
    at.run(say(*stranger, "GET / HTTP/1.1\r\n\r\n" + std::string(64, '.')));
    CHECK(at.run(joining::listen(*stranger, at.in(3 * seconds))).empty());
  }
  CHECK(here.guard->turned_away() == 20);
  int came = 0;
  std::optional<colls::failure> failed;
  at.run(keep_error(come_in(at.on, here.place.local(), 1, "wrong", &came), &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
  at.run(come_in(at.on, here.place.local(), 1, "right", &came));
  CHECK(came == 1);
  CHECK(here.ranks == std::vector<int>{1});
}

TEST_CASE("ten thousand connections that come and go do not hurt") {
  bench at;
  house here(at);
  int came = 0;
  for (int i = 0; i < 10'000; ++i) {
    const colls::detail::descriptor socket = colls::detail::open_socket(loopback());
    const endpoint where = here.place.local();
    (void)::connect(socket.get(), where.data(), static_cast<socklen_t>(where.size()));
    if (i % 16 == 0) at.on.poll();
    if (i % 2500 == 0) at.run(come_in_in_the_end(at.on, where, 2, 20, &came));
  }
  CHECK(came == 4);
  // Those that found the backlog full never came.
  at.turn(500 * milliseconds);
  CHECK(here.guard->pending_strangers() == 0);
  CHECK(here.guard->turned_away() > 1000);
}
