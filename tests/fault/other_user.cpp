// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// A world on loopback that was given no secret, beside processes of another user of this host: as a
// rank, as a reporter, as a peer of a link, as the store, as the owner of the local socket's name.
// These need root, to become other users.

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

// Below the range from which the system draws ports for others.
int next_port() {
  static int which = 0;
  return 31000 + ::getpid() % 80 * 20 + which++;
}
colls::endpoint at(int port) {
  return {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(port)};
}

/// A process of some user; `main` gives its exit status.
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
  /// Its next line; empty: none came, or it has ended.
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

  /// Until it has logged that; false: it does not.
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
  colls::config how;
  how.rank = rank;
  how.size = 2;
  how.address = "tcp://127.0.0.1:" + std::to_string(port);
  how.join_timeout = 30s;
  return how;
}

/// Says the port of its links, turns the engine until it is told to go on, then adds up.
int work_as(const colls::config& how, const line& test) {
  bool right = false;
  const int status = colls::run(
      [&](colls::world& world) -> task<> {
        test.say(std::to_string(world.net().members().link_listener.local().port()));
        colls::engine& on = world.net().driver();
        while (!test.told()) co_await on.sleep_until(on.now() + colls::milliseconds);
        std::vector<double> data(1000, world.rank() + 1);
        co_await world.all_reduce(data);
        right = data.front() == 3 && data.back() == 3;
      },
      how);
  return status == 0 && right ? 0 : 1;
}
std::function<int(const line&)> rank_of(const colls::config& how) {
  return [=](const line& test) { return work_as(how, test); };
}

/// Both ranks of the owner, in their world.
struct pair_of_ranks {
  explicit pair_of_ranks(const char* transport = "hybrid")
      : first(owner, rank_of(with(0, transport))), second(owner, rank_of(with(1, transport))) {
    for (process* each : {&first, &second}) {
      const std::string text = each->hear();
      REQUIRE(!text.empty());
      links.push_back(std::stoi(text));
    }
  }
  colls::config with(int rank, const char* transport) const {
    colls::config how = of_rank(rank, port);
    how.transport = transport;
    return how;
  }
  /// Neither has noticed anything.
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
  std::vector<int> links;
};

enum class fate { let_in, sent_away, unheard };

/// What an outsider that says it has no secret, as the job has none, comes to.
task<> enter(colls::stream& link, colls::purpose what, int rank, fate* end) {
  colls::hello mine;
  mine.what = what;
  mine.job = colls::detail::hash_of("");
  mine.rank = rank;
  mine.world = 2;
  const colls::secret none("", true);
  *end = fate::sent_away;
  // As `prove` does, but whatever the other side proves is good.
  const colls::hello_bytes sent = colls::detail::introduce(mine, none);
  colls::hello_bytes got{};
  co_await link.write({sent.data(), sent.size()});
  co_await link.read(colls::detail::whole(got));
  colls::proof_bytes proof =
      colls::detail::make_proof(none, colls::detail::role::connects, sent, got);
  co_await link.write({proof.data(), proof.size()});
  co_await link.read(colls::detail::whole(proof));
  co_await colls::await_verdict(link, mine);
  *end = fate::let_in;
}

task<> report_death(colls::stream& link, fate* end) {
  co_await enter(link, colls::purpose::store, -1, end);
  colls::failure why(colls::errc::peer_failed, "says an outsider");
  why.culprit = 0;
  std::string out;
  using frame = colls::detail::store_frame;
  colls::detail::append_frame(out, {.what = frame::kind::enter}, {}, {});
  colls::detail::append_frame(out, {.what = frame::kind::report, .id = 1}, {},
                              colls::reported_failure::bytes_of(why));
  co_await link.write({reinterpret_cast<const std::byte*>(out.data()), out.size()});
  std::byte answer[64];
  co_await link.read({answer, sizeof answer});
}

/// The fate of an outsider that does `work` on a connection; `local`: on a local socket.
template <class Work>
fate intrude(int port, bool local, Work work) {
  process outside(outsider, [&](const line&) {
    boost::asio::io_context io(1);
    const auto on = colls::engine::of(io.get_executor());
    fate end = fate::unheard;
    try {
      colls::detail::descriptor socket;
      const auto connected = [&]() -> task<> {
        colls::stream link(*on);
        link.deadline(on->now() + 10 * colls::seconds);
        co_await link.connect(at(port));
        co_await work(link, &end);
      };
      const auto beside = [&]() -> task<> {
        colls::stream link(*on, std::move(socket));
        link.deadline(on->now() + 10 * colls::seconds);
        co_await work(link, &end);
      };
      if (local && colls::shm::connect_beside(at(port), socket)) return static_cast<int>(end);
      colls::sync_wait(*on, local ? beside() : connected());
    } catch (const std::exception& thrown) {
      std::fprintf(stderr, "%s\n", thrown.what());
    }
    return static_cast<int>(end);
  });
  const auto end = static_cast<fate>(outside.wait());
  INFO(outside.log());
  CHECK((end == fate::let_in || end == fate::sent_away));
  return end;
}

/// A store of the outsider's that lets everybody in, as far as it can; `beside`: it has the local
/// socket's name, too, and hands out the secret that it asks for. Else it takes any proof.
std::function<int(const line&)> impostor(int port, bool beside) {
  return [=](const line& test) {
    colls::listener door;
    if (door.listen(at(port))) return 1;
    colls::listener local;
    if (beside && colls::shm::listen_beside(door.local(), local)) return 2;
    boost::asio::io_context io(1);
    const auto on = colls::engine::of(io.get_executor());
    const auto handed_out = colls::secret::drawn(colls::detail::draw_secret());
    test.say("listens");
    const auto take_any_proof = [](colls::stream& link, const colls::hello& mine) -> task<> {
      colls::hello_bytes theirs{};
      co_await link.read(colls::detail::whole(theirs));
      const colls::hello_bytes sent = colls::detail::introduce(mine, colls::secret("", true));
      co_await link.write({sent.data(), sent.size()});
      colls::proof_bytes proof{};
      co_await link.read(colls::detail::whole(proof));
    };
    const auto welcome = [&](colls::detail::descriptor socket) -> task<> {
      colls::stream link(*on, std::move(socket));
      link.deadline(on->now() + 5 * colls::seconds);
      colls::hello mine;
      mine.what = colls::purpose::store;
      mine.job = colls::detail::hash_of("");
      mine.rank = 0;
      mine.world = 2;
      if (beside) {
        co_await colls::challenge(link, mine, handed_out);
      } else {
        co_await take_any_proof(link, mine);
      }
      std::fprintf(stderr, "a rank came in\n");
      co_await colls::give_verdict(link, colls::verdict::accepted);
      std::byte rest[64];
      co_await link.read({rest, sizeof rest});
    };
    const auto hand_out_key = [&](colls::detail::descriptor socket) -> task<> {
      colls::stream link(*on, std::move(socket));
      const auto key = colls::detail::write_local_key(handed_out);
      co_await link.write({key.data(), key.size()});
    };
    const auto serve = [&]() -> task<> {
      colls::task_group guests(*on);
      while (!test.told()) {
        if (auto socket = door.accept()) guests.start(welcome(std::move(socket)));
        if (beside) {
          if (auto socket = local.accept()) guests.start(hand_out_key(std::move(socket)));
        }
        co_await on->sleep_until(on->now() + colls::milliseconds);
      }
    };
    colls::sync_wait(*on, serve());
    return 0;
  };
}

}  // namespace

TEST_CASE("a rank of another user does not come in without a secret, and both sides say why") {
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
    colls::config how = of_rank(rank, port);
    how.secret = "known to both";
    return rank_of(how);
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
  CHECK(intrude(both.port, false, report_death) == fate::sent_away);
  both.go_on();
}

TEST_CASE("another user is no peer of a link, by TCP or by a local socket") {
  if (!can_change_user()) return;
  for (const char* transport : {"hybrid", "tcp"}) {
    CAPTURE(transport);
    pair_of_ranks both(transport);
    const auto as_rank = [](int rank) {
      return [=](colls::stream& link, fate* end) {
        return enter(link, colls::purpose::link, rank, end);
      };
    };
    for (int rank = 0; rank < 2; ++rank) {
      const int port = both.links[static_cast<std::size_t>(rank)];
      CHECK(intrude(port, false, as_rank(1 - rank)) == fate::sent_away);
      if (std::string(transport) == "hybrid") {
        CHECK(intrude(port, true, as_rank(1 - rank)) == fate::sent_away);
      }
    }
    both.go_on();
  }
}

TEST_CASE("another user gets no key, whatever it thinks of the user that it asks") {
  if (!can_change_user()) return;
  pair_of_ranks both;
  process outside(outsider, [&](const line&) {
    colls::detail::descriptor socket;
    if (colls::shm::connect_beside(at(both.port), socket)) return 2;
    pollfd ready{socket.get(), POLLIN, 0};
    std::byte said[256];
    if (::poll(&ready, 1, 10'000) != 1) return 3;
    return ::recv(socket.get(), said, sizeof said, 0) > 0 ? 1 : 0;
  });
  CHECK(outside.wait() == 0);
  both.go_on();
}

TEST_CASE("another user that has taken the port and plays the store gets no rank") {
  if (!can_change_user()) return;
  for (const bool beside : {false, true}) {
    CAPTURE(beside);
    const int port = next_port();
    process store(outsider, impostor(port, beside));
    REQUIRE(store.hear() == "listens");
    colls::config how = of_rank(1, port);
    how.join_timeout = 2500ms;
    process rank_1(owner, rank_of(how));
    CHECK(rank_1.wait() == 1);
    store.tell();
    CHECK(store.wait() == 0);
    CHECK(!contains(store.log(), "a rank came in"));
    const std::string place = "127.0.0.1:" + std::to_string(port);
    if (beside) {
      CHECK(contains(rank_1.log(), "auth_failed"));
      CHECK(contains(rank_1.log(), place + " is served by user 65534"));
    } else {
      CHECK(contains(rank_1.log(), place + " takes connections and is no rank 0 of this user"));
    }
  }
}

TEST_CASE("what another user has put where the store's file belongs stops no rank") {
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
        // An open that may block waits for 45 s.
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
      colls::config how = of_rank(rank, 0);
      how.address = "file://" + path;
      how.join_timeout = 60s;
      return rank_of(how);
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
  // With a secret nothing is asked for there.
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
