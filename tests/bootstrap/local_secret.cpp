// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/local_secret.hpp>

#include <colls/bootstrap/dial.hpp>
#include <colls/driver/local_socket.hpp>

#include "../support/joining.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>

using namespace joining;
using colls::hello;
using colls::secret;

namespace {

hello of_rank(int rank) {
  hello mine;
  mine.what = colls::purpose::store;
  mine.job = 7;
  mine.rank = rank;
  mine.world = 2;
  return mine;
}

/// Asks beside `store`.
struct asked {
  std::optional<secret> key;
  std::optional<colls::failure> failed;
};
asked ask(bench& at, const endpoint& store, bool insecure = false) {
  asked got;
  at.run(keep(colls::detail::ask_for_local_key(at.on, store, insecure, at.in(5 * seconds)),
              &got.key, &got.failed));
  return got;
}

/// Plays the local socket of a store: says `words` and hangs up.
asked ask_impostor(const std::string& words) {
  bench at;
  colls::listener tcp, local;
  REQUIRE(!tcp.listen(loopback()));
  REQUIRE(!colls::shm::listen_beside(tcp.local(), local));
  asked got;
  const auto speak = [](engine& on, colls::listener& from, std::string text) -> task<> {
    colls::detail::descriptor socket;
    while (!(socket = from.accept())) co_await on.sleep_until(on.now() + colls::milliseconds);
    colls::stream link(on, std::move(socket));
    co_await say(link, text);
  };
  std::vector<task<>> work;
  work.push_back(speak(at.on, local, words));
  work.push_back(
      keep(colls::detail::ask_for_local_key(at.on, tcp.local(), false, at.in(2 * seconds)),
           &got.key, &got.failed));
  at.run_all(std::move(work));
  return got;
}

constexpr char of_another_user[] = "another user's";

/// A process of another user, to `getsockopt` below, that asks for the key beside `store`.
colls::detail::descriptor ask_as_another_user(const endpoint& store, int number) {
  auto socket = colls::shm::open_local_socket();
  sockaddr_un mine{};
  mine.sun_family = AF_UNIX;
  const int size = std::snprintf(mine.sun_path + 1, sizeof mine.sun_path - 1, "%s %d %d",
                                 of_another_user, ::getpid(), number);
  const auto whole =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(size));
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&mine), whole) == 0);
  const colls::shm::local_name name(store);
  REQUIRE(::connect(socket.get(), name.get(), name.size) == 0);
  return socket;
}

/// Whether the other end has closed it, without a word.
bool is_sent_away(const colls::detail::descriptor& socket) {
  std::byte said[256];
  return ::recv(socket.get(), said, sizeof said, MSG_DONTWAIT) == 0;
}

}  // namespace

// Every such question of the program comes through here.
extern "C" int getsockopt(int socket, int level, int name, void* value, socklen_t* size) noexcept {
  const auto got = static_cast<int>(::syscall(SYS_getsockopt, socket, level, name, value, size));
  sockaddr_un other{};
  socklen_t room = sizeof other;
  if (got == 0 && level == SOL_SOCKET && name == SO_PEERCRED &&
      ::getpeername(socket, reinterpret_cast<sockaddr*>(&other), &room) == 0 &&
      std::memcmp(other.sun_path + 1, of_another_user, sizeof of_another_user - 1) == 0) {
    ++static_cast<ucred*>(value)->uid;
  }
  return got;
}

TEST_CASE("every secret that is drawn is another, and has its size") {
  const std::string one = colls::detail::draw_secret();
  CHECK(one.size() == secret::drawn_size);
  CHECK(one.find_first_not_of("0123456789abcdef") == one.npos);
  CHECK(one != colls::detail::draw_secret());
}

TEST_CASE("a process of this user gets the drawn secret, and comes in with it and with no other") {
  bench at;
  const secret key = secret::drawn(colls::detail::draw_secret());
  colls::store_server server(at.on, of_rank(0), key);
  REQUIRE(!server.listen(loopback()));
  const asked got = ask(at, server.local());
  REQUIRE(got.key);
  CHECK(got.key->is_drawn());
  CHECK(got.key->text() == key.text());
  const auto dial = [&](secret mine) {
    std::optional<colls::failure> failed;
    std::optional<std::shared_ptr<colls::tcp_store>> store;
    at.run(keep(colls::detail::dial_store(at.on, server.local(), of_rank(1), mine,
                                          at.in(5 * seconds), 5 * seconds),
                &store, &failed));
    CHECK((mine.text() == key.text()) == store.has_value());
    return failed ? failed->code : errc{};
  };
  CHECK(dial(secret::drawn(colls::detail::draw_secret())) == errc::auth_failed);
  CHECK(dial(secret("", true)) == errc{});  // it asks all the same
}

TEST_CASE("a drawn secret is none that a user gave, and the error says which side has one") {
  bench at;
  const secret drawn = secret::drawn(colls::detail::draw_secret());
  colls::store_server without(at.on, of_rank(0), drawn);
  REQUIRE(!without.listen(loopback()));
  secret given("given");
  std::optional<colls::failure> failed;
  std::optional<std::shared_ptr<colls::tcp_store>> none;
  at.run(keep(colls::detail::dial_store(at.on, without.local(), of_rank(1), given,
                                        at.in(5 * seconds), 5 * seconds),
              &none, &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
  CHECK(contains(failed->detail, "has no secret and this process has one"));

  const secret known("known");
  colls::store_server with(at.on, of_rank(0), known);
  REQUIRE(!with.listen(loopback()));
  const asked got = ask(at, with.local());
  REQUIRE(got.failed);
  CHECK(got.failed->code == errc::auth_failed);
  CHECK(contains(got.failed->detail, "has a secret and this process has none"));
  CHECK(!contains(text(colls::detail::write_local_key(known)), "known"));
}

TEST_CASE("a store that does without a secret is good only for a process that does so, too") {
  bench at;
  const secret open("", true);
  colls::store_server server(at.on, of_rank(0), open);
  REQUIRE(!server.listen(loopback()));
  const asked careful = ask(at, server.local());
  REQUIRE(careful.failed);
  CHECK(careful.failed->code == errc::insecure_bind);
  const asked careless = ask(at, server.local(), true);
  REQUIRE(careless.key);
  CHECK(careless.key->empty());
  CHECK(careless.key->insecure());
}

TEST_CASE("a listener that has no local socket beside it is no rank 0 of this user") {
  bench at;
  colls::listener other;
  REQUIRE(!other.listen(loopback()));
  const asked got = ask(at, other.local());
  REQUIRE(got.failed);
  CHECK(got.failed->code == errc::unreachable);
  CHECK(contains(got.failed->detail, "is no rank 0 of this user"));
}

TEST_CASE("what a local socket says is judged") {
  const std::string good =
      text(colls::detail::write_local_key(secret::drawn(colls::detail::draw_secret())));
  REQUIRE(ask_impostor(good).key);
  CHECK(ask_impostor(good + "more").key);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, good.size() - 1}) {
    const asked got = ask_impostor(good.substr(0, size));
    REQUIRE(got.failed);
    CHECK(got.failed->code == errc::unreachable);
  }
  const asked other = ask_impostor("SSH-2.0-" + good.substr(8));
  REQUIRE(other.failed);
  CHECK(other.failed->code == errc::protocol_error);
  std::string newer = good;
  newer[8] = 99;
  const asked version = ask_impostor(newer);
  REQUIRE(version.failed);
  CHECK(version.failed->code == errc::version_mismatch);
  CHECK(contains(version.failed->detail, "wire version 99"));
  for (const char state : {char{0}, char{5}, char{-1}}) {
    std::string strange = good;
    strange[10] = state;
    const asked got = ask_impostor(strange);
    REQUIRE(got.failed);
    CHECK(got.failed->code == errc::protocol_error);
  }
}

TEST_CASE("a crowd of other users is sent away at a bounded rate, and this user gets the key") {
  bench at;
  const secret key = secret::drawn(colls::detail::draw_secret());
  colls::store_server server(at.on, of_rank(0), key);
  REQUIRE(!server.listen(loopback()));
  std::vector<colls::detail::descriptor> crowd;
  for (int i = 0; i < 400; ++i) crowd.push_back(ask_as_another_user(server.local(), i));
  const auto sent_away = [&] { return std::count_if(crowd.begin(), crowd.end(), is_sent_away); };
  const time_point began = at.on.now();
  at.turn(10 * milliseconds);
  const auto at_once = sent_away();
  CHECK(at_once > 0);
  // The last two bursts may both lie in the time that is left of a division.
  CHECK(at_once <= 64 * ((at.on.now() - began) / (32 * milliseconds) + 2));
  const asked got = ask(at, server.local());
  REQUIRE(got.key);
  CHECK(got.key->text() == key.text());
  CHECK(sent_away() == 400);
  CHECK(at.on.now() - began >= 400 / 64 * 32 * milliseconds);
}

TEST_CASE("at the limit on open files a process that asks is told so, and gets the key later") {
  bench at;
  const secret key = secret::drawn(colls::detail::draw_secret());
  colls::store_server server(at.on, of_rank(0), key);
  REQUIRE(!server.listen(loopback()));
  for (int i = 0; i < 3; ++i) {
    const joining::file_limit one(1);  // the asking side's own end
    const asked got = ask(at, server.local());
    REQUIRE(got.failed);
    CHECK(got.failed->code == errc::too_many_files);
    CHECK(contains(got.failed->detail, "the process that serves 127.0.0.1:"));
  }
  const asked got = ask(at, server.local());
  REQUIRE(got.key);
  CHECK(got.key->text() == key.text());
}

TEST_CASE("a drawn secret without the local socket's name is no store") {
  bench at;
  colls::listener tcp, local;
  REQUIRE(!tcp.listen(loopback()));
  const endpoint where = tcp.local();
  REQUIRE(!colls::shm::listen_beside(where, local));
  tcp.close();
  colls::store_server drawn(at.on, of_rank(0), secret::drawn(colls::detail::draw_secret()));
  CHECK(drawn.listen(where) == std::errc::address_in_use);
  CHECK(!drawn.is_open());
  CHECK(drawn.lacks_local_socket());
  CHECK(colls::detail::user_beside(where) == std::int64_t{::geteuid()});
  colls::store_server given(at.on, of_rank(0), secret("given"));
  CHECK(!given.listen(where));
  CHECK(!given.lacks_local_socket());
}

TEST_CASE("a user that has no number in this user namespace is not taken for this one") {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    if (::unshare(CLONE_NEWUSER) != 0) ::_exit(77);
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) ::_exit(3);
    // Nothing is mapped: this process and all others are user 65534 now.
    const bool same = colls::detail::user_behind(ends[0]) == std::int64_t{::geteuid()};
    ::_exit(!same ? 2 : colls::detail::is_own_user(ends[0]) ? 1 : 0);
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) {
    MESSAGE("skipped: no user namespaces here");
    return;
  }
  CHECK(WEXITSTATUS(status) == 0);
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  CHECK(colls::detail::is_own_user(ends[0]));
  for (const int end : ends) ::close(end);
}
