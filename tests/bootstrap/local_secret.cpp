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
  mine.purpose = colls::connection_purpose::store;
  mine.job = 7;
  mine.rank = rank;
  mine.world = 2;
  return mine;
}

/// The secret or the error of a fetch from the local socket beside `store`.
struct fetch_result {
  std::optional<secret> key;
  std::optional<colls::failure> failed;
};
fetch_result fetch_secret(bench& at, const endpoint& store, bool insecure = false) {
  fetch_result got;
  at.run(keep(colls::detail::fetch_local_secret(at.on, store, insecure, at.in(5 * seconds)),
              &got.key, &got.failed));
  return got;
}

/// Plays the local socket of a store: says `message` and hangs up.
fetch_result fetch_from_impostor(const std::string& message) {
  bench at;
  colls::listener tcp, local;
  REQUIRE(!tcp.listen(loopback()));
  REQUIRE(!colls::shm::listen_local(tcp.local(), local));
  fetch_result got;
  const auto send_message = [](engine& on, colls::listener& from, std::string text) -> task<> {
    colls::detail::descriptor socket;
    while (!(socket = from.accept())) co_await on.sleep_until(on.now() + colls::milliseconds);
    colls::stream link(on, std::move(socket));
    co_await say(link, text);
  };
  std::vector<task<>> work;
  work.push_back(send_message(at.on, local, message));
  work.push_back(
      keep(colls::detail::fetch_local_secret(at.on, tcp.local(), false, at.in(2 * seconds)),
           &got.key, &got.failed));
  at.run_all(std::move(work));
  return got;
}

constexpr char of_another_user[] = "another user's";

/// Requests the key beside `store`. `getsockopt` below reports another user for this connection.
colls::detail::descriptor connect_as_another_user(const endpoint& store, int number) {
  auto socket = colls::shm::open_local_socket();
  sockaddr_un mine{};
  mine.sun_family = AF_UNIX;
  const int size = std::snprintf(mine.sun_path + 1, sizeof mine.sun_path - 1, "%s %d %d",
                                 of_another_user, ::getpid(), number);
  const auto name_size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<std::size_t>(size));
  REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&mine), name_size) == 0);
  const colls::shm::local_name name(store);
  REQUIRE(::connect(socket.get(), name.get(), name.size) == 0);
  return socket;
}

/// Whether the other end has closed the connection without sending anything.
bool is_closed_by_peer(const colls::detail::descriptor& socket) {
  std::byte byte_buffer[256];
  return ::recv(socket.get(), byte_buffer, sizeof byte_buffer, MSG_DONTWAIT) == 0;
}

}  // namespace

// Every getsockopt call of the program goes through this function.
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

TEST_CASE("every drawn secret is a different one, and has its size") {
  const std::string one = colls::detail::draw_secret();
  CHECK(one.size() == secret::drawn_size);
  CHECK(one.find_first_not_of("0123456789abcdef") == one.npos);
  CHECK(one != colls::detail::draw_secret());
}

TEST_CASE("a process of this user gets the drawn secret, and is accepted with it and no other") {
  bench at;
  const secret key = secret::drawn(colls::detail::draw_secret());
  colls::store_server server(at.on, of_rank(0), key);
  REQUIRE(!server.listen(loopback()));
  const fetch_result got = fetch_secret(at, server.local());
  REQUIRE(got.key);
  CHECK(got.key->is_drawn());
  CHECK(got.key->text() == key.text());
  const auto dial = [&](secret mine) {
    std::optional<colls::failure> failed;
    std::optional<std::shared_ptr<colls::tcp_store>> store;
    at.run(keep(colls::detail::dial_store_once(at.on, server.local(), of_rank(1), mine,
                                               at.in(5 * seconds), 5 * seconds),
                &store, &failed));
    CHECK((mine.text() == key.text()) == store.has_value());
    return failed ? failed->code : errc{};
  };
  CHECK(dial(secret::drawn(colls::detail::draw_secret())) == errc::auth_failed);
  CHECK(dial(secret("", true)) == errc{});  // it fetches the drawn secret
}

TEST_CASE("a drawn secret is not a user's secret, and the error says which side has one") {
  bench at;
  const secret drawn = secret::drawn(colls::detail::draw_secret());
  colls::store_server without(at.on, of_rank(0), drawn);
  REQUIRE(!without.listen(loopback()));
  secret given("given");
  std::optional<colls::failure> failed;
  std::optional<std::shared_ptr<colls::tcp_store>> none;
  at.run(keep(colls::detail::dial_store_once(at.on, without.local(), of_rank(1), given,
                                             at.in(5 * seconds), 5 * seconds),
              &none, &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::auth_failed);
  CHECK(contains(failed->detail, "has no secret and this process has one"));

  const secret known("known");
  colls::store_server with(at.on, of_rank(0), known);
  REQUIRE(!with.listen(loopback()));
  const fetch_result got = fetch_secret(at, with.local());
  REQUIRE(got.failed);
  CHECK(got.failed->code == errc::auth_failed);
  CHECK(contains(got.failed->detail, "has a secret and this process has none"));
  CHECK(!contains(text(colls::detail::write_local_secret(known)), "known"));
}

TEST_CASE("only a process that allows insecure connections uses a store without a secret") {
  bench at;
  const secret open("", true);
  colls::store_server server(at.on, of_rank(0), open);
  REQUIRE(!server.listen(loopback()));
  const fetch_result careful = fetch_secret(at, server.local());
  REQUIRE(careful.failed);
  CHECK(careful.failed->code == errc::insecure_bind);
  const fetch_result careless = fetch_secret(at, server.local(), true);
  REQUIRE(careless.key);
  CHECK(careless.key->empty());
  CHECK(careless.key->insecure());
}

TEST_CASE("a listener without a local socket beside it is no rank 0 of this user") {
  bench at;
  colls::listener other;
  REQUIRE(!other.listen(loopback()));
  const fetch_result got = fetch_secret(at, other.local());
  REQUIRE(got.failed);
  CHECK(got.failed->code == errc::unreachable);
  CHECK(contains(got.failed->detail, "is no rank 0 of this user"));
}

TEST_CASE("the message of a local socket is validated") {
  const std::string good =
      text(colls::detail::write_local_secret(secret::drawn(colls::detail::draw_secret())));
  REQUIRE(fetch_from_impostor(good).key);
  CHECK(fetch_from_impostor(good + "more").key);
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, good.size() - 1}) {
    const fetch_result got = fetch_from_impostor(good.substr(0, size));
    REQUIRE(got.failed);
    CHECK(got.failed->code == errc::unreachable);
  }
  const fetch_result other = fetch_from_impostor("SSH-2.0-" + good.substr(8));
  REQUIRE(other.failed);
  CHECK(other.failed->code == errc::protocol_error);
  std::string newer = good;
  newer[8] = 99;
  const fetch_result version = fetch_from_impostor(newer);
  REQUIRE(version.failed);
  CHECK(version.failed->code == errc::version_mismatch);
  CHECK(contains(version.failed->detail, "wire version 99"));
  for (const char state : {'\0', '\5', '\xff'}) {
    std::string strange = good;
    strange[10] = state;
    const fetch_result got = fetch_from_impostor(strange);
    REQUIRE(got.failed);
    CHECK(got.failed->code == errc::protocol_error);
  }
}

TEST_CASE("a crowd of other users is rejected at a bounded rate, and this user gets the key") {
  bench at;
  const secret key = secret::drawn(colls::detail::draw_secret());
  colls::store_server server(at.on, of_rank(0), key);
  REQUIRE(!server.listen(loopback()));
  std::vector<colls::detail::descriptor> crowd;
  for (int i = 0; i < 400; ++i) crowd.push_back(connect_as_another_user(server.local(), i));
  const auto closed_count = [&] {
    return std::count_if(crowd.begin(), crowd.end(), is_closed_by_peer);
  };
  const time_point began = at.on.now();
  at.turn(10 * milliseconds);
  const auto at_once = closed_count();
  CHECK(at_once > 0);
  // The division drops a part of an interval, in which up to two more bursts may lie.
  CHECK(at_once <= 64 * ((at.on.now() - began) / (32 * milliseconds) + 2));
  const fetch_result got = fetch_secret(at, server.local());
  REQUIRE(got.key);
  CHECK(got.key->text() == key.text());
  CHECK(closed_count() == 400);
  CHECK(at.on.now() - began >= 400 / 64 * 32 * milliseconds);
}

TEST_CASE("at the limit on open files a fetch fails with that reason, and a later one succeeds") {
  bench at;
  const secret key = secret::drawn(colls::detail::draw_secret());
  colls::store_server server(at.on, of_rank(0), key);
  REQUIRE(!server.listen(loopback()));
  for (int i = 0; i < 3; ++i) {
    const joining::file_limit one(1);  // the asking side's own end
    const fetch_result got = fetch_secret(at, server.local());
    REQUIRE(got.failed);
    CHECK(got.failed->code == errc::too_many_files);
    CHECK(contains(got.failed->detail, "the process that serves 127.0.0.1:"));
  }
  const fetch_result got = fetch_secret(at, server.local());
  REQUIRE(got.key);
  CHECK(got.key->text() == key.text());
}

TEST_CASE("a store with a drawn secret does not open without the local socket's name") {
  bench at;
  colls::listener tcp, local;
  REQUIRE(!tcp.listen(loopback()));
  const endpoint where = tcp.local();
  REQUIRE(!colls::shm::listen_local(where, local));
  tcp.close();
  colls::store_server drawn(at.on, of_rank(0), secret::drawn(colls::detail::draw_secret()));
  CHECK(drawn.listen(where) == std::errc::address_in_use);
  CHECK(!drawn.is_open());
  CHECK(drawn.lacks_local_socket());
  CHECK(colls::detail::user_listening_beside(where) == std::int64_t{::geteuid()});
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
    // No user is mapped: this process and all others are user 65534 now.
    const bool same = colls::detail::peer_user(ends[0]) == std::int64_t{::geteuid()};
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
