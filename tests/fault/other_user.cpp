// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// A world on loopback without a configured secret, beside processes of another user of this host,
// which try to be a rank, a reporter of failures, a peer of a connection, the store, and the owner
// of the local socket's name. The tests need root, to become other users.

#include "launcher.hpp"
#include "processes.hpp"

#include <colls/bootstrap/local_secret.hpp>
#include <colls/bootstrap/store_frame.hpp>
#include <colls/coroutine/sync_wait.hpp>
#include <colls/driver/local_socket.hpp>

#include <grp.h>

using namespace processes;
using namespace std::chrono_literals;

namespace {

constexpr uid_t owner = 1234;
constexpr uid_t outsider = 65534;

bool can_change_user() {
  if (::geteuid() == 0) return true;
  MESSAGE("skipped: another user needs root");
  return false;
}

// Returns a port below the range from which the system draws ports.
int next_port() {
  static int which = 0;
  return 31000 + ::getpid() % 80 * 20 + which++;
}
colls::endpoint at(int port) {
  return {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)};
}

/// A process of `user`; `main` returns its exit status.
class process {
 public:
  process(uid_t user, const std::function<int(const line&)>& main) {
    int out[2];
    int in[2];
    REQUIRE((::pipe2(out, O_CLOEXEC) == 0 && ::pipe2(in, O_CLOEXEC) == 0));
    log_ = ::memfd_create("log", MFD_CLOEXEC);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(log_, STDERR_FILENO);
      ::close(out[0]);
      ::close(in[1]);
      if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) ::_exit(99);
      ::_exit(main(line(out[1], in[0])));
    }
    ::close(out[1]);
    ::close(in[0]);
    out_ = out[0];
    in_ = in[1];
  }
  process(const process&) = delete;
  process& operator=(const process&) = delete;
  ~process() {
    if (status_ < 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {out_, in_, log_}) ::close(fd);
  }

  void tell() { REQUIRE(::write(in_, "!", 1) == 1); }
  /// Returns its next line; empty: none came in time, or the process has ended.
  std::string hear() {
    std::string text;
    pollfd ready{out_, POLLIN, 0};
    char next = 0;
    while (::poll(&ready, 1, 30'000) == 1 && ::read(out_, &next, 1) == 1 && next != '\n') {
      text += next;
    }
    return text;
  }
  int wait() {
    const double until = now() + 30;
    int status = 0;
    while (status_ < 0 && now() < until) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      } else {
        ::usleep(500);
      }
    }
    return status_;
  }
  std::string log() const {
    std::string all;
    char some[4096];
    for (ssize_t size = 1; size > 0; all.append(some, static_cast<std::size_t>(size))) {
      size = ::pread(log_, some, sizeof some, static_cast<off_t>(all.size()));
      if (size <= 0) break;
    }
    return all;
  }

  /// Waits until it has logged `text`; false: it has not in time.
  bool logs(const std::string& text) const {
    const double until = now() + 30;
    while (!contains(log(), text) && now() < until) ::usleep(1000);
    return contains(log(), text);
  }

 private:
  pid_t pid_ = -1;
  int out_ = -1;
  int in_ = -1;
  int log_ = -1;
  int status_ = -1;
};

colls::config of_rank(int rank, int port) {
  colls::config cfg;
  cfg.rank = rank;
  cfg.size = 2;
  cfg.address = "tcp://127.0.0.1:" + std::to_string(port);
  cfg.join_timeout = 30s;
  return cfg;
}

/// Prints the port where the rank listens, runs the engine until the test tells it to go on, then
/// makes a sum.
int work_as(const colls::config& cfg, const line& test) {
  bool right = false;
  const int status = colls::run(
      [&](colls::world& world) -> task<> {
        test.say(std::to_string(world.net().info().peer_listener.local().port()));
        colls::engine& driver = world.net().driver();
        while (!test.told()) co_await driver.sleep_until(driver.now() + colls::milliseconds);
        std::vector<double> data(1000, world.rank() + 1);
        co_await world.all_reduce(data);
        right = data.front() == 3 && data.back() == 3;
      },
      cfg);
  return status == 0 && right ? 0 : 1;
}
std::function<int(const line&)> rank_of(const colls::config& cfg) {
  return [=](const line& test) { return work_as(cfg, test); };
}

/// Both ranks of the owner, which have formed their world.
struct pair_of_ranks {
  explicit pair_of_ranks(const char* transport = "hybrid")
      : first(owner, rank_of(with(0, transport))), second(owner, rank_of(with(1, transport))) {
    for (process* each : {&first, &second}) {
      const std::string text = each->hear();
      REQUIRE(!text.empty());
      ports.push_back(std::stoi(text));
    }
  }
  colls::config with(int rank, const char* transport) const {
    colls::config cfg = of_rank(rank, port);
    cfg.transport = transport;
    return cfg;
  }
  /// Lets both ranks go on, and checks that neither has failed.
  void go_on() {
    for (process* each : {&first, &second}) each->tell();
    for (process* each : {&first, &second}) {
      CHECK(each->wait() == 0);
      CHECK(!contains(each->log(), "peer_failed"));
    }
  }

  int port = next_port();
  process first;
  process second;
  std::vector<int> ports;
};

enum class outcome { accepted, refused, no_answer };

/// Connects as an outsider that claims to have no secret, as the job has none.
task<> enter(colls::stream& connection, colls::connection_purpose purpose, int rank, outcome* end) {
  colls::hello mine;
  mine.purpose = purpose;
  mine.job = colls::detail::hash_of("");
  mine.rank = rank;
  mine.world = 2;
  const colls::secret none("", true);
  *end = outcome::refused;
  // Like `prove`, but it accepts any proof of the other side.
  const colls::hello_bytes sent = colls::detail::prepare_hello(mine, none);
  colls::hello_bytes got{};
  co_await connection.write({sent.data(), sent.size()});
  co_await connection.read(colls::detail::as_mutable_bytes(got));
  colls::proof_bytes proof =
      colls::detail::make_proof(none, colls::detail::role::connects, sent, got);
  co_await connection.write({proof.data(), proof.size()});
  co_await connection.read(colls::detail::as_mutable_bytes(proof));
  co_await colls::await_verdict(connection, mine);
  *end = outcome::accepted;
}

task<> report_death(colls::stream& connection, outcome* end) {
  co_await enter(connection, colls::connection_purpose::store, -1, end);
  colls::failure why(colls::errc::peer_failed, "says an outsider");
  why.culprit = 0;
  std::string out;
  using frame = colls::detail::store_frame;
  colls::detail::append_frame(out, {.op = frame::opcode::enter}, {}, {});
  colls::detail::append_frame(out, {.op = frame::opcode::report, .id = 1}, {},
                              colls::reported_failure::bytes_of(why));
  co_await connection.write({reinterpret_cast<const std::byte*>(out.data()), out.size()});
  std::byte answer[64];
  co_await connection.read({answer, sizeof answer});
}

/// Returns the outcome for an outsider that does `work` on a connection, or on a local socket
/// (`local`).
template <class Work>
outcome intrude(int port, bool local, Work work) {
  process outside(outsider, [&](const line&) {
    boost::asio::io_context io(1);
    const auto driver = colls::engine::get(io.get_executor());
    outcome end = outcome::no_answer;
    try {
      colls::detail::descriptor socket;
      const auto connected = [&]() -> task<> {
        colls::stream connection(*driver);
        connection.set_deadline(driver->now() + 10 * colls::seconds);
        co_await connection.connect(at(port));
        co_await work(connection, &end);
      };
      const auto connected_locally = [&]() -> task<> {
        colls::stream connection(*driver, std::move(socket));
        connection.set_deadline(driver->now() + 10 * colls::seconds);
        co_await work(connection, &end);
      };
      if (local && colls::shm::connect_local(at(port), socket)) return static_cast<int>(end);
      colls::sync_wait(*driver, local ? connected_locally() : connected());
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "%s\n", thrown.what());
    }
    return static_cast<int>(end);
  });
  const auto end = static_cast<outcome>(outside.wait());
  INFO(outside.log());
  CHECK((end == outcome::accepted || end == outcome::refused));
  return end;
}

/// A store of the outsider that accepts every rank, as far as it can. With `has_local_socket` it
/// owns the local socket's name, too, and hands out the secret that it asks for; else it accepts
/// any proof.
std::function<int(const line&)> impostor(int port, bool has_local_socket) {
  return [=](const line& test) {
    colls::listener listener;
    if (listener.listen(at(port))) return 1;
    colls::listener local;
    if (has_local_socket && colls::shm::listen_local(listener.local(), local)) return 2;
    boost::asio::io_context io(1);
    const auto driver = colls::engine::get(io.get_executor());
    const auto handed_out = colls::secret::drawn(colls::detail::draw_secret());
    test.say("listens");
    const auto take_any_proof = [](colls::stream& connection, const colls::hello& mine) -> task<> {
      colls::hello_bytes theirs{};
      co_await connection.read(colls::detail::as_mutable_bytes(theirs));
      const colls::hello_bytes sent = colls::detail::prepare_hello(mine, colls::secret("", true));
      co_await connection.write({sent.data(), sent.size()});
      colls::proof_bytes proof{};
      co_await connection.read(colls::detail::as_mutable_bytes(proof));
    };
    const auto accept_rank = [&](colls::detail::descriptor socket) -> task<> {
      colls::stream connection(*driver, std::move(socket));
      connection.set_deadline(driver->now() + 5 * colls::seconds);
      colls::hello mine;
      mine.purpose = colls::connection_purpose::store;
      mine.job = colls::detail::hash_of("");
      mine.rank = 0;
      mine.world = 2;
      if (has_local_socket) {
        co_await colls::challenge(connection, mine, handed_out);
      } else {
        co_await take_any_proof(connection, mine);
      }
      std::fprintf(stderr, "a rank came in\n");
      co_await colls::give_verdict(connection, colls::verdict::accepted);
      std::byte rest[64];
      co_await connection.read({rest, sizeof rest});
    };
    const auto hand_out_key = [&](colls::detail::descriptor socket) -> task<> {
      colls::stream connection(*driver, std::move(socket));
      const auto key = colls::detail::write_local_secret(handed_out);
      co_await connection.write({key.data(), key.size()});
    };
    const auto serve = [&]() -> task<> {
      colls::task_group connections(*driver);
      while (!test.told()) {
        if (auto socket = listener.accept()) connections.start(accept_rank(std::move(socket)));
        if (has_local_socket) {
          if (auto socket = local.accept()) connections.start(hand_out_key(std::move(socket)));
        }
        co_await driver->sleep_until(driver->now() + colls::milliseconds);
      }
    };
    colls::sync_wait(*driver, serve());
    return 0;
  };
}

}  // namespace

TEST_CASE("without a secret a rank of another user is refused, and both sides log the reason") {
  if (!can_change_user()) return;
  for (const uid_t first : {owner, outsider, uid_t{0}}) {
    CAPTURE(first);
    const uid_t second = first == owner ? outsider : owner;
    const int port = next_port();
    process rank_0(first, rank_of(of_rank(0, port)));
    process rank_1(second, rank_of(of_rank(1, port)));
    const std::string from = std::to_string(first);
    const std::string to = std::to_string(second);
    CHECK(rank_1.wait() == 1);
    CHECK(contains(rank_1.log(), "auth_failed"));
    CHECK(contains(rank_1.log(), "127.0.0.1:" + std::to_string(port) + " is served by user " +
                                     from + " and this process runs as user " + to));
    CHECK(contains(rank_1.log(), "ranks of one host under different users need a secret"));
    CHECK(rank_0.logs("a process of user " + to + " asked for the key of this job"));
    CHECK(rank_0.logs("ranks of one host under different users need a secret"));
  }
}

TEST_CASE("ranks of two users work together with a secret") {
  if (!can_change_user()) return;
  const int port = next_port();
  const auto with_secret = [&](int rank) {
    colls::config cfg = of_rank(rank, port);
    cfg.secret = "known to both";
    return rank_of(cfg);
  };
  process rank_0(owner, with_secret(0));
  process rank_1(outsider, with_secret(1));
  for (process* each : {&rank_0, &rank_1}) each->tell();
  CHECK(rank_0.wait() == 0);
  CHECK(rank_1.wait() == 0);
}

TEST_CASE("another user cannot report to the store of a world without a secret") {
  if (!can_change_user()) return;
  pair_of_ranks both;
  CHECK(intrude(both.port, false, report_death) == outcome::refused);
  both.go_on();
}

TEST_CASE("another user cannot connect as a peer, by TCP or by a local socket") {
  if (!can_change_user()) return;
  for (const char* transport : {"hybrid", "tcp"}) {
    CAPTURE(transport);
    pair_of_ranks both(transport);
    const auto as_rank = [](int rank) {
      return [=](colls::stream& connection, outcome* end) {
        return enter(connection, colls::connection_purpose::peer, rank, end);
      };
    };
    for (int rank = 0; rank < 2; ++rank) {
      const int port = both.ports[static_cast<std::size_t>(rank)];
      CHECK(intrude(port, false, as_rank(1 - rank)) == outcome::refused);
      if (std::string(transport) == "hybrid") {
        CHECK(intrude(port, true, as_rank(1 - rank)) == outcome::refused);
      }
    }
    both.go_on();
  }
}

TEST_CASE("another user gets no key, even if it does not check the user of the store") {
  if (!can_change_user()) return;
  pair_of_ranks both;
  process outside(outsider, [&](const line&) {
    colls::detail::descriptor socket;
    if (colls::shm::connect_local(at(both.port), socket)) return 2;
    pollfd ready{socket.get(), POLLIN, 0};
    std::byte answer[256];
    if (::poll(&ready, 1, 10'000) != 1) return 3;
    return ::recv(socket.get(), answer, sizeof answer, 0) > 0 ? 1 : 0;
  });
  CHECK(outside.wait() == 0);
  both.go_on();
}

TEST_CASE("another user that has taken the port and serves a store gets no rank") {
  if (!can_change_user()) return;
  for (const bool has_local_socket : {false, true}) {
    CAPTURE(has_local_socket);
    const int port = next_port();
    process store(outsider, impostor(port, has_local_socket));
    REQUIRE(store.hear() == "listens");
    colls::config cfg = of_rank(1, port);
    cfg.join_timeout = 2500ms;
    process rank_1(owner, rank_of(cfg));
    CHECK(rank_1.wait() == 1);
    store.tell();
    CHECK(store.wait() == 0);
    CHECK(!contains(store.log(), "a rank came in"));
    const std::string place = "127.0.0.1:" + std::to_string(port);
    if (has_local_socket) {
      CHECK(contains(rank_1.log(), "auth_failed"));
      CHECK(contains(rank_1.log(), place + " is served by user 65534"));
    } else {
      CHECK(contains(rank_1.log(), place + " accepts connections and is no rank 0 of this user"));
    }
  }
}

TEST_CASE("a file of another user at the path of the store's file blocks no rank") {
  if (!can_change_user()) return;
  enum class put { own_fifo, open_fifo, leased_file };
  for (const put each : {put::own_fifo, put::open_fifo, put::leased_file}) {
    CAPTURE(static_cast<int>(each));
    char folder[] = "/tmp/colls-test-other-user-XXXXXX";
    REQUIRE(::mkdtemp(folder) != nullptr);
    REQUIRE(::chmod(folder, 01777) == 0);
    const std::string path = std::string(folder) + "/store";
    process outside(outsider, [&](const line& test) {
      ::signal(SIGIO, SIG_IGN);
      const mode_t mode = each == put::own_fifo ? 0600 : 0666;
      int file = -1;
      if (each == put::leased_file) {
        file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
        // A blocking open waits 45 s for the lease.
        if (file < 0 || ::fcntl(file, F_SETLEASE, F_WRLCK) != 0) return 1;
      } else if (::mkfifo(path.c_str(), mode) != 0) {
        return 2;
      }
      if (::chmod(path.c_str(), mode) != 0) return 3;
      test.say("there");
      return test.hear() ? 0 : 4;
    });
    REQUIRE(outside.hear() == "there");
    const auto of_file = [&](int rank) {
      colls::config cfg = of_rank(rank, 0);
      cfg.address = "file://" + path;
      cfg.join_timeout = 60s;
      return rank_of(cfg);
    };
    process rank_0(owner, of_file(0));
    process rank_1(owner, of_file(1));
    const std::string what = each == put::leased_file ? "file" : "FIFO";
    for (process* rank : {&rank_0, &rank_1}) {
      CHECK(rank->wait() == 1);
      CHECK(contains(rank->log(), "join_failed"));
      CHECK(contains(rank->log(), path + " is a " + what + " of user 65534"));
    }
    outside.tell();
    CHECK(outside.wait() == 0);
    REQUIRE(::unlink(path.c_str()) == 0);
    REQUIRE(::rmdir(folder) == 0);
  }
}

TEST_CASE("another user that has the local socket's name is named by rank 0") {
  if (!can_change_user()) return;
  const int port = next_port();
  process squatter(outsider, [=](const line& test) {
    const colls::shm::local_name name(at(port));
    const auto local = colls::shm::open_local_socket();
    if (::bind(local.get(), name.get(), name.size) != 0 || ::listen(local.get(), 8) != 0) return 1;
    test.say("listens");
    return test.hear() ? 0 : 2;
  });
  REQUIRE(squatter.hear() == "listens");
  process rank_0(owner, rank_of(of_rank(0, port)));
  CHECK(rank_0.wait() == 1);
  CHECK(contains(rank_0.log(), "address_in_use"));
  CHECK(contains(
      rank_0.log(),
      "the local socket beside it, which ranks without a secret need, belongs to user 65534"));
  // With a secret ranks do not need the local socket.
  colls::config given = of_rank(0, port);
  given.secret = "known to both";
  process with_0(owner, rank_of(given));
  given.rank = 1;
  process with_1(owner, rank_of(given));
  for (process* each : {&with_0, &with_1}) each->tell();
  CHECK(with_0.wait() == 0);
  CHECK(with_1.wait() == 0);
  squatter.tell();
  CHECK(squatter.wait() == 0);
}
