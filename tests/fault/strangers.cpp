// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Strangers at the ports of a job that works: the store's, and those where the ranks listen.

#include <colls/rendezvous/authenticate.hpp>

#include <sys/resource.h>

#include <atomic>
#include <random>
#include <thread>

#include "launcher.hpp"
#include "processes.hpp"

using namespace processes;

namespace {

const char* const the_secret = "what strangers do not know";

/// One who connects to a port of this host and knows no better.
class stranger {
 public:
  explicit stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const colls::endpoint where(boost::asio::ip::address_v4::loopback(),
                                static_cast<std::uint16_t>(port));
    // Where the queue is full it gives up at once.
    const timeval patience{0, 100'000};
    for (const int which : {SO_SNDTIMEO, SO_RCVTIMEO}) {
      ::setsockopt(socket_.get(), SOL_SOCKET, which, &patience, sizeof patience);
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
  /// Fills `into`, or false.
  template <class Bytes>
  bool hear(Bytes& into) const {
    return ::recv(socket_.get(), into.data(), into.size(), MSG_WAITALL) ==
           static_cast<ssize_t>(into.size());
  }
  /// It was shown the door: it can read nothing more than what was sent before.
  bool is_turned_away() const {
    const timeval patience{30, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    char byte = 0;
    const ssize_t got = ::recv(socket_.get(), &byte, 1, 0);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }
  /// Leaves as if it had crashed.
  void reset() const {
    const linger now{1, 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }

 private:
  colls::detail::descriptor socket_;
  bool connected_ = false;
};

colls::hello hello_of(colls::purpose what, int rank) {
  colls::hello mine;
  mine.what = what;
  mine.job = colls::detail::hash_of("");
  mine.rank = rank;
  mine.world = 3;
  return mine;
}

/// What somebody who knows the secret said at a port, as a listener on the wire has it.
struct recording {
  colls::hello_bytes hello{};
  colls::proof_bytes proof{};
};
recording record(int port, colls::purpose what) {
  const colls::secret secret(the_secret);
  // In a crowd one is turned away at times, and comes again, as a rank does.
  for (const double until = now() + 60; now() < until;) {
    recording made;
    made.hello = colls::detail::introduce(hello_of(what, 1), secret);
    const stranger visitor(port);
    colls::hello_bytes answer{};
    visitor.say(made.hello);
    if (!visitor.hear(answer)) continue;
    made.proof =
        colls::detail::make_proof(secret, colls::detail::role::connects, made.hello, answer);
    visitor.say(made.proof);
    colls::proof_bytes theirs{};
    if (visitor.hear(theirs)) return made;
  }
  FAIL("nobody was let in at port ", port);
  return {};
}

void replay(int port, const recording& of) {
  const stranger visitor(port);
  colls::hello_bytes answer{};
  visitor.say(of.hello);
  if (!visitor.hear(answer)) return;  // crowded out
  visitor.say(of.proof);
  CHECK(visitor.is_turned_away());
}

/// Gives a rank its own words back.
void mirror(int port) {
  const stranger visitor(port);
  visitor.say(colls::write_hello(hello_of(colls::purpose::link, 2)));
  std::array<char, 64> back{};
  for (int i = 0; i < 3 && visitor.hear(back); ++i) visitor.say(back);
  CHECK(visitor.is_turned_away());
}

/// A crowd: garbage, silence, the first bytes of a right HELLO one at a time, and those who come
/// and go, until it is sent home.
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
    std::vector<stranger> dripping;
    const auto words = colls::write_hello(hello_of(colls::purpose::link, 1));
    std::size_t said = 0;
    const double began = now();
    double last_drop = began;
    while (!stop_) {
      const int port = ports_[random() % ports_.size()];
      ++connects_;
      if (static_cast<double>(connects_) > 1500 * (now() - began)) ::usleep(1000);
      stranger visitor(port);
      if (!visitor.connected()) continue;
      switch (random() % 8) {
        case 0: {
          std::string garbage(1 + random() % 500, ' ');
          for (char& letter : garbage) letter = static_cast<char>(random());
          visitor.say(garbage);
          break;
        }
        case 1:
          visitor.say(std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"));
          break;
        case 2:
          visitor.say(words);
          break;
        case 3:
          if (silent.size() < 600) {
            silent.push_back(std::move(visitor));
          } else {
            silent[random() % 600] = std::move(visitor);
          }
          break;
        case 4:
          if (dripping.size() < 8) dripping.push_back(std::move(visitor));
          break;
        case 5:
          visitor.reset();
          break;
        default:
          break;
      }
      if (now() - last_drop > 1) {
        last_drop = now();
        for (const stranger& each : dripping) each.say(&words[said % words.size()], 1);
        ++said;
      }
    }
  }

  std::vector<int> ports_;
  std::atomic<bool> stop_ = false;
  std::atomic<long> connects_ = 0;
  std::thread thread_;
};

colls::config with_secret() {
  colls::config how;
  how.secret = the_secret;
  return how;
}

/// Says where it listens, waits for the word, works until the next one.
task<> work(colls::world& world, const line& test) {
  test.say(std::to_string(world.net().members().link_listener.local().port()));
  while (!test.told()) {
    co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds);
  }
  int on[] = {1};
  bool right = true;
  int rounds = 0;
  for (; on[0] != 0; ++rounds) {
    std::vector<float> sums(rounds % 50 == 0 ? 300'000 : 1000, static_cast<float>(world.rank()));
    co_await world.all_reduce(sums);
    right &= sums.front() == 3 && sums.back() == 3;
    std::vector<int> all(3 * 100);
    const std::vector<int> mine(100, world.rank());
    co_await world.all_gather(mine, all);
    right &= all[0] == 0 && all[100] == 1 && all[299] == 2;
    if (world.rank() == 0) on[0] = test.told() ? 0 : 1;
    co_await world.broadcast(on, 0);
  }
  test.say(right && rounds > 10 ? "right" : "wrong");
}

}  // namespace

TEST_CASE("a crowd of strangers at every port costs a working job nothing but a few sockets") {
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
    // The links open under siege.
    for (int rank = 0; rank < 3; ++rank) all.tell(rank);
    ::usleep(1'000'000);
    std::vector<used> before;
    for (int rank = 0; rank < 3; ++rank) before.push_back(use(rank));
    const auto by_hand = [&] {
      for (const int port : ports) {
        const bool is_store = port == ports.front();
        const recording once =
            record(port, is_store ? colls::purpose::store : colls::purpose::link);
        replay(port, once);
        replay(ports.front(), once);
        mirror(port);
      }
    };
    by_hand();
    // Until the slow ones' patience is over, too.
    while ((outside.connects() < 10'000 || now() - began < 8) && now() - began < 150) {
      ::usleep(100'000);
      for (int rank = 0; rank < 3; ++rank) {
        const used then = before[static_cast<std::size_t>(rank)];
        const used at_present = use(rank);
        CAPTURE(rank);
        if (frees_memory) CHECK(at_present.resident < then.resident + (4 << 20));
        CHECK(at_present.descriptors < 100);
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
    const int doors = rank == 0 ? 2 : 1;
    const int periods = 1 + static_cast<int>((now() - began) / 10);
    const int lines = count(all.log(rank), "turned away at");
    CHECK(lines >= 1);
    CHECK(lines <= doors * periods);
    CHECK(count(all.log(rank), "\n") <= lines + (rank == 0 ? 1 : 0));  // rank 1 is here already
  }
  MESSAGE(connects, " connects in ", now() - began, " s");
}

TEST_CASE("the same at a launcher's port") {
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
  CHECK(count(it.err(), "\n") <= 2 + static_cast<int>(it.seconds() / 10));
}

TEST_CASE("a rank that computes while strangers fill its queue is not taken for dead") {
  constexpr int more_than_the_queue = 5000;
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < 2 * more_than_the_queue) {
    MESSAGE("skipped: the limit on open files is ", before.rlim_max);
    return;
  }
  job all(
      3,
      [](colls::world& world, const line& test) -> task<> {
        test.say(std::to_string(world.net().members().link_listener.local().port()));
        test.hear();
        std::vector<int> data(1000, world.rank());
        co_await world.all_reduce(data);
        test.say(std::to_string(data[0]));
      },
      with_secret());
  std::vector<int> ports;
  for (int rank = 0; rank < 3; ++rank) ports.push_back(std::stoi(all.hear(rank)));
  const rlimit enough{before.rlim_max, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &enough);
  {
    std::vector<stranger> queue;
    while (queue.size() < more_than_the_queue) {
      queue.emplace_back(ports[1]);
      if (!queue.back().connected()) break;
    }
    MESSAGE(queue.size(), " strangers wait");
    // Their links to rank 1 cannot open for longer than a silent host has to live.
    for (const int rank : {0, 2}) all.tell(rank);
    ::usleep(13'000'000);
    all.tell(1);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.hear(rank) == "3");
    CHECK(all.descriptors(1) < 100);
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank);
    CAPTURE(all.log(rank));
    CHECK(all.wait(rank).status == 0);
  }
}
