// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Strangers, which do not know the secret, at the ports of a running job: the port of the store and
// those of the ranks.

#include <colls/bootstrap/handshake.hpp>

#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <thread>

#include "launcher.hpp"
#include "processes.hpp"

using namespace processes;

namespace {

const char* const the_secret = "what strangers do not know";

/// A client that connects to a port of this host and sends raw bytes.
class stranger {
 public:
  explicit stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const colls::endpoint where(boost::asio::ip::address_v4::loopback(),
                                static_cast<std::uint16_t>(port));
    // If the queue is full `connect` fails soon.
    const timeval limit{0, 100'000};
    for (const int which : {SO_SNDTIMEO, SO_RCVTIMEO}) {
      ::setsockopt(socket_.get(), SOL_SOCKET, which, &limit, sizeof limit);
    }
    connected_ = ::connect(socket_.get(), where.data(), static_cast<socklen_t>(where.size())) == 0;
  }
  bool connected() const { return connected_; }
  void say(const void* bytes, std::size_t size) const {
    [[maybe_unused]] const auto sent = ::send(socket_.get(), bytes, size, MSG_NOSIGNAL);
  }
  template <class Bytes>
  void say(const Bytes& bytes) const {
    say(bytes.data(), bytes.size());
  }
  /// Reads until `into` is full; false: the connection ended or timed out before.
  template <class Bytes>
  bool hear(Bytes& into) const {
    return ::recv(socket_.get(), into.data(), into.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(into.size());
  }
  /// Waits for the end of the connection and returns whether no more bytes come before it.
  bool is_closed() const {
    const timeval limit{30, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char byte = 0;
    const ssize_t got = ::recv(socket_.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  /// Makes the destructor reset the connection, as after a crash.
  void reset() const {
    const linger now{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

 private:
  colls::detail::descriptor socket_;
  bool connected_ = false;
};

colls::hello hello_of(colls::connection_purpose purpose, int rank) {
  colls::hello mine;
  mine.purpose = purpose;
  mine.has_secret = true;
  mine.job = colls::detail::hash_of("");
  mine.rank = rank;
  mine.world = 3;
  return mine;
}

/// The messages of a peer that knows the secret, as an eavesdropper records them.
struct recording {
  colls::hello_bytes hello{};
  colls::proof_bytes proof{};
};
recording record(int port, colls::connection_purpose purpose) {
  const colls::secret secret(the_secret);
  // Among many strangers it may be turned away, and connects again, as a rank does.
  for (const double until = now() + 60; now() < until;) {
    recording made;
    made.hello = colls::detail::prepare_hello(hello_of(purpose, 1), secret);
    const stranger client(port);
    colls::hello_bytes answer{};
    client.say(made.hello);
    if (!client.hear(answer)) continue;
    made.proof =
        colls::detail::make_proof(secret, colls::detail::role::connects, made.hello, answer);
    client.say(made.proof);
    colls::proof_bytes theirs{};
    if (client.hear(theirs)) return made;
  }
  FAIL("no handshake succeeded at port ", port);
  return {};
}

/// Sends a HELLO of this job and then `proof(answer)`, and checks that the proof is refused.
/// Connects again if it is evicted before.
template <class Proof>
void check_refused(int port, const colls::hello_bytes& hello, const Proof& proof) {
  for (const double until = now() + 60; now() < until;) {
    const stranger client(port);
    colls::hello_bytes answer{};
    colls::proof_bytes verdict{};
    verdict.fill(std::byte{1});
    client.say(hello);
    if (!client.hear(answer)) continue;
    client.say(proof(answer));
    if (!client.hear(verdict)) continue;
    CHECK(verdict == colls::proof_bytes{});
    CHECK(client.is_closed());
    return;
  }
  FAIL("no proof was checked at port ", port);
}

void replay(int port, const recording& recorded) {
  check_refused(port, recorded.hello, [&](const colls::hello_bytes&) { return recorded.proof; });
}

/// Sends a rank a part of its own HELLO as the proof.
void mirror(int port, colls::connection_purpose purpose) {
  const colls::hello_bytes hello = colls::write_hello(hello_of(purpose, 2));
  check_refused(port, hello, [](const colls::hello_bytes& answer) {
    colls::proof_bytes back{};
    std::copy_n(answer.begin(), back.size(), back.begin());
    return back;
  });
}

/// A crowd of strangers that send garbage, nothing, a valid HELLO and nothing more, or its first
/// bytes one at a time, or that connect and disconnect, until the destructor ends them.
class crowd {
 public:
  explicit crowd(std::vector<int> ports) : ports_(std::move(ports)), thread_([this] { run(); }) {}
  ~crowd() {
    stop_ = true;
    thread_.join();
  }
  long connects() const { return connects_; }

 private:
  void run() {
    std::mt19937 random(11);
    std::vector<stranger> silent;
    std::vector<stranger> slow;
    const auto hello = colls::write_hello(hello_of(colls::connection_purpose::peer, 1));
    std::size_t sent = 0;
    const double began = now();
    double last_sent = began;
    while (!stop_) {
      const int port = ports_[random() % ports_.size()];
      ++connects_;
      if (static_cast<double>(connects_) > 1500 * (now() - began)) ::usleep(1000);
      stranger client(port);
      if (!client.connected()) continue;
      switch (random() % 8) {
        case 0: {
          std::string garbage(1 + random() % 500, ' ');
          for (char& letter : garbage) letter = static_cast<char>(random());
          client.say(garbage);
          break;
        }
        case 1:
          client.say(std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
          break;
        case 2:
          client.say(hello);
          [[fallthrough]];
        case 3:
          if (silent.size() < 600) {
            silent.push_back(std::move(client));
          } else {
            silent[random() % 600] = std::move(client);
          }
          break;
        case 4:
          if (slow.size() < 8) slow.push_back(std::move(client));
          break;
        case 5:
          client.reset();
          break;
        default:
          break;
      }
      if (now() - last_sent > 1) {
        last_sent = now();
        for (const stranger& each : slow) each.say(&hello[sent % hello.size()], 1);
        ++sent;
      }
    }
  }

  std::vector<int> ports_;
  std::atomic<bool> stop_ = false;
  std::atomic<long> connects_ = 0;
  std::thread thread_;
};

/// Strangers that send a valid HELLO, keep the connection, and reconnect at once when it is closed.
class flood {
 public:
  flood(std::size_t count, std::vector<int> ports)
      : ports_(std::move(ports)), all_(count), thread_([this] { run(); }) {}
  ~flood() {
    stop_ = true;
    thread_.join();
  }
  void also_at(const std::vector<int>& ports) {
    const std::lock_guard lock(guard_);
    ports_.insert(ports_.end(), ports.begin(), ports.end());
  }
  /// The number of connections that were closed.
  long closed() const { return closed_; }
  /// Whether all have started to connect.
  bool has_started() const { return started_; }

 private:
  struct client {
    colls::detail::descriptor socket;
    bool has_sent = false;
  };

  void run() {
    const auto events = colls::detail::descriptor(::epoll_create1(EPOLL_CLOEXEC));
    for (std::size_t i = 0; i < all_.size(); ++i) connect(events.get(), i);
    started_ = true;
    while (!stop_) {
      epoll_event ready[64];
      const int count = ::epoll_wait(events.get(), ready, 64, 50);
      for (int i = 0; i < count; ++i) handle(events.get(), ready[i].data.u64);
    }
  }
  void connect(int events, std::size_t which) {
    int port = 0;
    {
      const std::lock_guard lock(guard_);
      port = ports_[random_() % ports_.size()];
    }
    const colls::endpoint where(boost::asio::ip::address_v4::loopback(),
                                static_cast<std::uint16_t>(port));
    client& it = all_[which];
    it = {colls::detail::open_socket(where), false};
    (void)::connect(it.socket.get(), where.data(), static_cast<socklen_t>(where.size()));
    epoll_event event{};
    event.events = EPOLLOUT;
    event.data.u64 = which;
    ::epoll_ctl(events, EPOLL_CTL_ADD, it.socket.get(), &event);
  }
  void handle(int events, std::size_t which) {
    client& it = all_[which];
    char bytes[256];
    using purpose = colls::connection_purpose;
    const auto hello = colls::write_hello(
        hello_of(which % 2 == 0 ? purpose::store : purpose::peer, 1 + static_cast<int>(which % 2)));
    if (!it.has_sent && ::send(it.socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL) > 0) {
      it.has_sent = true;
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = which;
      ::epoll_ctl(events, EPOLL_CTL_MOD, it.socket.get(), &event);
    } else if (!it.has_sent || ::recv(it.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT) <= 0) {
      ++closed_;
      connect(events, which);
    }
  }

  std::mutex guard_;
  std::vector<int> ports_;
  std::mt19937 random_{7};
  std::vector<client> all_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> started_ = false;
  std::atomic<long> closed_ = 0;
  std::thread thread_;
};

/// Raises the limit on open files to the hard limit, until its destructor runs.
class many_files {
 public:
  many_files() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit most{before_.rlim_max, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &most) == 0);
  }
  ~many_files() { CHECK(::setrlimit(RLIMIT_NOFILE, &before_) == 0); }
  rlim_t count() const { return before_.rlim_max; }

 private:
  rlimit before_{};
};

colls::config with_secret() {
  colls::config cfg;
  cfg.secret = the_secret;
  return cfg;
}

/// Prints the port where the rank listens, waits for a byte of the test, and works until the next.
task<> work(colls::world& world, const line& test) {
  test.say(std::to_string(world.net().info().peer_listener.local().port()));
  while (!test.told()) {
    co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds);
  }
  int goes_on[] = {1};
  bool right = true;
  int rounds = 0;
  for (; goes_on[0] != 0; ++rounds) {
    std::vector<float> sums(rounds % 50 == 0 ? 300'000 : 1000, static_cast<float>(world.rank()));
    co_await world.all_reduce(sums);
    right &= sums.front() == 3 && sums.back() == 3;
    std::vector<int> all(3 * 100);
    const std::vector<int> mine(100, world.rank());
    co_await world.all_gather(mine, all);
    right &= all[0] == 0 && all[100] == 1 && all[299] == 2;
    if (world.rank() == 0) goes_on[0] = test.told() ? 0 : 1;
    co_await world.broadcast(goes_on, 0);
  }
  test.say(right && rounds > 10 ? "right" : "wrong");
}

}  // namespace

TEST_CASE("a crowd of strangers at every port costs a running job only a few sockets") {
  job all(3, work, with_secret());
  std::vector<int> ports{all.port()};
  for (int rank = 0; rank < 3; ++rank) ports.push_back(std::stoi(all.hear(rank)));
  struct used {
    std::size_t resident;
    int descriptors;
    int threads;
  };
  const auto use = [&](int rank) {
    return used{all.resident(rank), all.descriptors(rank), all.threads(rank)};
  };
  const double began = now();
  long connects = 0;
  {
    crowd outside(ports);
    ::usleep(100'000);
    // The ranks connect among the strangers.
    for (int rank = 0; rank < 3; ++rank) all.tell(rank);
    ::usleep(1'000'000);
    std::vector<used> before;
    for (int rank = 0; rank < 3; ++rank) before.push_back(use(rank));
    const auto attack = [&] {
      for (const int port : ports) {
        const bool is_store = port == ports.front();
        using purpose = colls::connection_purpose;
        const purpose wanted = is_store ? purpose::store : purpose::peer;
        const recording once = record(port, wanted);
        replay(port, once);
        replay(ports.front(), once);
        mirror(port, wanted);
      }
    };
    attack();
    // Until the timeout of slow handshakes has passed, too.
    while ((outside.connects() < 10'000 || now() - began < 8) && now() - began < 150) {
      ::usleep(100'000);
      for (int rank = 0; rank < 3; ++rank) {
        const used then = before[static_cast<std::size_t>(rank)];
        const used at_present = use(rank);
        CAPTURE(rank);
        if (frees_memory) CHECK(at_present.resident < then.resident + (4 << 20));
        CHECK(at_present.descriptors < 200);
        CHECK(at_present.threads == then.threads);
      }
    }
    connects = outside.connects();
    all.tell(0);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.hear(rank) == "right");
  }
  CHECK(connects >= 10'000);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    CHECK(all.wait(rank).status == 0);
    CAPTURE(all.log(rank));
    const int lines = count(all.log(rank), "turned away at");
    CHECK(lines >= 1);
    CHECK(lines <= 1 + static_cast<int>((now() - began) / 60));
    CHECK(count(all.log(rank), "\n") <= lines + (rank == 0 ? 1 : 0));  // rank 1 is here already
  }
  MESSAGE(connects, " connects in ", now() - began, " s");
}

TEST_CASE("a thousand strangers that send a valid HELLO and reconnect keep no rank out") {
  constexpr int ranks = 8;
  const many_files limit;
  if (limit.count() < 2000) {
    MESSAGE("skipped: the limit on open files is ", limit.count());
    return;
  }
  // Below the range from which the system draws ports.
  const int store = 11000 + ::getpid() % 1000;
  const auto rank = [&](int which) {
    return strings{"RANK=" + std::to_string(which),
                   "WORLD_SIZE=" + std::to_string(ranks),
                   "MASTER_ADDR=127.0.0.1",
                   "MASTER_PORT=" + std::to_string(store),
                   std::string("COLLS_SECRET=") + the_secret,
                   "COLLS_TRANSPORT=tcp",
                   "COLLS_JOIN_TIMEOUT=60"};
  };
  const auto main = [](colls::world& world, const line& test) -> task<> {
    test.say(std::to_string(world.net().info().peer_listener.local().port()));
    while (!test.told()) {
      co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds);
    }
    // Opens a connection between each two ranks.
    std::vector<int> mine(ranks, world.rank());
    std::vector<int> all(ranks);
    bool right = true;
    for (int i = 0; i < 20; ++i) {
      co_await world.all_to_all(mine, all);
      for (int peer = 0; peer < ranks; ++peer) right &= all[static_cast<std::size_t>(peer)] == peer;
    }
    test.say(right ? "right" : "wrong");
  };
  int gate[2];
  REQUIRE(::pipe2(gate, O_CLOEXEC) == 0);
  const double began = now();
  job first({rank(0)}, main);
  std::vector<strings> others;
  for (int which = 1; which < ranks; ++which) others.push_back(rank(which));
  // Forked before there are strangers, because they would inherit the sockets of those.
  job rest(others, main, {.address = "env://"}, [&](colls::config&) {
    char byte = 0;
    if (::read(gate[0], &byte, 1) != 1) ::_exit(3);
  });
  while (!stranger(store).connected()) {
    REQUIRE(now() - began < 10);
    ::usleep(1000);
  }
  flood outside(1000, {store});
  while (!outside.has_started() || outside.closed() < 1000) ::usleep(1000);
  const double came = now();
  REQUIRE(::write(gate[1], "1234567", ranks - 1) == ranks - 1);
  std::vector<int> ports{std::stoi("0" + first.hear(0))};
  for (int which = 1; which < ranks; ++which)
    ports.push_back(std::stoi("0" + rest.hear(which - 1)));
  const double in = now();
  CHECK(in - came < 10);
  outside.also_at(ports);
  for (const long before = outside.closed(); outside.closed() < before + 3000;) {
    REQUIRE(now() - in < 20);
    ::usleep(1000);
  }
  first.tell(0);
  for (int which = 1; which < ranks; ++which) rest.tell(which - 1);
  CHECK(first.hear(0) == "right");
  CHECK(rest.all_say("right"));
  MESSAGE("all in after ", in - came, " s, right after ", now() - in, " s, ", outside.closed(),
          " connections closed");
  const auto check = [&](job& of, int which) {
    CAPTURE(of.log(which));
    CHECK(of.wait(which).status == 0);
    const int lines = count(of.log(which), "turned away at");
    CHECK(lines <= 1 + static_cast<int>((now() - began) / 60));
    CHECK(count(of.log(which), "\n") == lines);
    return lines;
  };
  CHECK(check(first, 0) >= 1);
  for (int which = 1; which < ranks; ++which) check(rest, which - 1);
  for (const int end : gate) ::close(end);
}

TEST_CASE("a crowd of strangers at a launcher's port costs the job nothing") {
  launcher_test::run it(
      {"-n", "3", "sh", "-c", "echo at ${COLLS_STORE##*:}; exec examples/bandwidth"});
  REQUIRE(it.shows("] at ", 3));
  const std::string& text = it.out();
  {
    crowd outside({std::stoi(text.substr(text.find("] at ") + 5))});
    CHECK(it.wait() == 0);
    CHECK(outside.connects() > 100);
  }
  CAPTURE(it.err());
  CHECK(count(it.err(), "\n") == count(it.err(), "warning: turned away at"));
  CHECK(count(it.err(), "\n") <= 1 + static_cast<int>(it.seconds() / 60));
}

TEST_CASE("a rank that computes while strangers fill its listen queue is not taken for dead") {
  constexpr int more_than_the_queue = 5000;
  const many_files limit;
  if (limit.count() < 2 * more_than_the_queue) {
    MESSAGE("skipped: the limit on open files is ", limit.count());
    return;
  }
  job all(
      3,
      [](colls::world& world, const line& test) -> task<> {
        test.say(std::to_string(world.net().info().peer_listener.local().port()));
        test.hear();
        std::vector<int> data(1000, world.rank());
        co_await world.all_reduce(data);
        test.say(std::to_string(data[0]));
      },
      with_secret());
  std::vector<int> ports;
  for (int rank = 0; rank < 3; ++rank) ports.push_back(std::stoi(all.hear(rank)));
  {
    std::vector<stranger> queue;
    while (queue.size() < more_than_the_queue) {
      queue.emplace_back(ports[1]);
      if (!queue.back().connected()) break;
    }
    MESSAGE(queue.size(), " strangers wait");
    // Connections to rank 1 cannot open for longer than a host may be silent.
    for (const int rank : {0, 2}) all.tell(rank);
    ::usleep(13'000'000);
    all.tell(1);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.hear(rank) == "3");
    CHECK(all.descriptors(1) < 200);
  }
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    CAPTURE(all.log(rank));
    CHECK(all.wait(rank).status == 0);
  }
}
