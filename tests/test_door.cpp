// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/rendezvous/door.hpp>

#include "joining.hpp"

#include <dirent.h>
#include <sys/syscall.h>

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

/// Dials again when the door had no room, as ranks do.
task<> come_in_in_the_end(engine& on, endpoint where, int rank, int* came) {
  for (const int before = *came; *came == before;) {
    std::optional<colls::failure> failed;
    co_await keep_error(come_in(on, where, rank, "right", came), &failed);
    if (failed && failed->code != errc::unreachable) throw colls::error(*failed);
  }
}

}  // namespace

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
    if (i % 100 == 99) at.run(come_in_in_the_end(at.on, here.place.local(), 1, &came));
  }
  at.turn(50 * milliseconds);
  CHECK(came == 3);
  CHECK(here.guard->pending_strangers() <= here.guard->most_strangers());
  CHECK(open_descriptors() - before - 300 <= here.guard->most_strangers() + 3);
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
    if (i % 2500 == 0) at.run(come_in_in_the_end(at.on, where, 2, &came));
  }
  CHECK(came == 4);
  // Those that found the backlog full never came.
  at.turn(500 * milliseconds);
  CHECK(here.guard->pending_strangers() == 0);
  CHECK(here.guard->turned_away() > 1000);
}
