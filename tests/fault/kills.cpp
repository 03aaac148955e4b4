// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// kill -9 of any rank at any moment: every other rank that needs it ends in time, by an error that
// names it. Communicators without it go on.

#include "launcher.hpp"
#include "processes.hpp"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <optional>
#include <random>

using namespace processes;
using colls::errc;

namespace {

constexpr double promised = detection::at_most;

/// Makes collectives, small and large, until one fails.
task<> work(colls::communicator<colls::interprocess_transport>& comm, std::size_t count) {
  std::vector<float> data(count, 1);
  std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
  for (;;) {
    co_await comm.all_reduce(data);
    co_await comm.barrier();
    co_await comm.all_gather(data, all);
    co_await comm.broadcast(data, 1 % comm.size());
    std::fill(data.begin(), data.end(), 1.F);
  }
}

/// Makes all_reduces in memory that every rank exposes, until one fails. After that no peer writes
/// to the memory.
task<> work_in_exposed_memory(colls::world& comm, const line& test, std::size_t count,
                              std::chrono::milliseconds limit) {
  colls::shared_buffer<float> data = comm.allocate<float>(count);
  std::exception_ptr why;
  try {
    for (;;) {
      std::fill(data.begin(), data.end(), 1.F);
      co_await comm.all_reduce(data, {.algorithm = colls::algorithm::direct, .timeout = limit});
      const auto sum = static_cast<float>(comm.size());
      if (std::count(data.begin(), data.end(), sum) != std::ssize(data)) {
        throw colls::error(errc::user_op_failed, "a wrong sum");
      }
    }
  } catch (const colls::error&) {
    why = std::current_exception();
  }
  std::fill(data.begin(), data.end(), -7.F);
  test.say("has given up");
  test.hear();  // until no peer can write any more
  if (std::count(data.begin(), data.end(), -7.F) != std::ssize(data)) {
    throw colls::error(errc::user_op_failed, "a peer wrote after the end");
  }
  std::rethrow_exception(why);
}

/// A page of a buffer that cannot be written until the test permits it. A rank that copies into it
/// stops there and answers no peer, like a process that is stopped.
class held_page {
 public:
  held_page(std::byte* at, const line& test) {
    const auto size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    auto first = reinterpret_cast<std::uintptr_t>(at);
    first = (first + size - 1) / size * size;
    now() = {reinterpret_cast<void*>(first), size, &test};
    struct sigaction action{};
    action.sa_handler = [](int) {
      if (now().test == nullptr) ::_exit(7);
      now().test->say("is inside");
      now().test->hear();
      (void)::mprotect(now().at, now().size, PROT_READ | PROT_WRITE);
      now().test = nullptr;
    };
    REQUIRE(::sigaction(SIGSEGV, &action, nullptr) == 0);
    REQUIRE(::mprotect(now().at, now().size, PROT_NONE) == 0);
  }

 private:
  struct place {
    void* at = nullptr;
    std::size_t size = 0;
    const line* test = nullptr;
  };
  static place& now() {
    static place held;
    return held;
  }
};

/// Makes collectives that copy and that reduce, to one rank and to all, until one fails, and checks
/// every result.
task<> copy_without_end(colls::world& comm, std::size_t count) {
  std::vector<int> data(count);
  std::vector<int> all(count * static_cast<std::size_t>(comm.size()));
  std::vector<int> sums(count);
  for (int turn = 0;; ++turn) {
    const int root = turn % comm.size();
    std::fill(data.begin(), data.end(), comm.rank() == root ? turn : -1);
    co_await comm.broadcast(data, root);
    bool right = std::count(data.begin(), data.end(), turn) == std::ssize(data);
    co_await comm.all_gather(data, all);
    right &= std::count(all.begin(), all.end(), turn) == std::ssize(all);
    co_await comm.reduce(data, sums, root);
    const int sum = turn * comm.size();
    const auto is_sum = [=](int each) { return each == sum; };
    right &= comm.rank() != root || std::all_of(sums.begin(), sums.end(), is_sum);
    co_await comm.reduce_scatter(all, sums);
    right &= std::all_of(sums.begin(), sums.end(), is_sum);
    if (!right) throw colls::error(errc::user_op_failed, "a wrong copy");
  }
}

/// Waits until a rank shares memory with a peer, so both have joined.
bool wait_for_shared_memory(pid_t rank) {
  for (const double until = now() + 20; now() < until; ::usleep(1000)) {
    std::ifstream maps("/proc/" + std::to_string(rank) + "/maps");
    const std::string all((std::istreambuf_iterator<char>(maps)), {});
    if (contains(all, "memfd:colls")) return true;
  }
  return false;
}

bool is_one_of(int rank, const std::vector<int>& victims) {
  return std::find(victims.begin(), victims.end(), rank) != victims.end();
}

/// Checks that the rank ends by an error that names a victim.
void check_named(job& all, int rank, const std::vector<int>& victims, double killed_at,
                 detection& times) {
  const ending& end = all.wait(rank);
  CAPTURE(rank);
  CAPTURE(end.message);
  CHECK(end.status == 1);
  CHECK(end.code == errc::peer_failed);
  CHECK(is_one_of(end.culprit, victims));
  CHECK(contains(all.log(rank), "peer_failed: rank " + std::to_string(end.culprit)));
  times.add(end.time - killed_at);
}
/// Checks that for all ranks but the victims.
void check_named(job& all, const std::vector<int>& victims, double killed_at, detection& times) {
  for (int rank = 0; rank < all.size(); ++rank) {
    if (!is_one_of(rank, victims)) check_named(all, rank, victims, killed_at, times);
  }
}
void check_named(job& all, int victim, double killed_at, detection& times) {
  check_named(all, std::vector<int>{victim}, killed_at, times);
}

/// Opens files until no descriptor is left.
std::vector<colls::detail::descriptor> take_all_descriptors() {
  const rlimit few{128, 128};
  if (::setrlimit(RLIMIT_NOFILE, &few) != 0) throw std::runtime_error("no limit was set");
  std::vector<colls::detail::descriptor> all;
  for (int made = 0; made >= 0;) {
    made = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (made >= 0) all.emplace_back(made);
  }
  return all;
}

/// The number of sockets of this process whose other end is open.
int live_sockets() {
  int found = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_storage at{};
    socklen_t size = sizeof at;
    char byte = 0;
    const bool connected = ::getpeername(fd, reinterpret_cast<sockaddr*>(&at), &size) == 0;
    if (connected && ::recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("kill -9 of any rank at any moment ends all others, and they name it") {
  std::mt19937 random(20261121);
  for (const char* transport : transports()) {
    detection times(std::string("kill -9 in a collective, ") + transport);
    for (int round = 0; round < runs(12); ++round) {
      const int size = 2 + static_cast<int>(random() % 4);
      const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
      const std::size_t count = round % 3 == 0   ? 300'000
                                : round % 8 == 1 ? 4'000'000
                                                 : 1 + random() % 5000;
      const unsigned delay = static_cast<unsigned>(random() % 30'000);
      CAPTURE(transport);
      CAPTURE(size);
      CAPTURE(victim);
      CAPTURE(count);
      CAPTURE(delay);
      const auto main = [=](colls::world& world, const line& test) -> task<> {
        test.say("ready");
        co_await work(world, count);
      };
      job all(size, main, {.transport = transport});
      CHECK(all.all_say("ready"));
      ::usleep(delay);
      const double killed_at = now();
      all.kill(victim);
      check_named(all, victim, killed_at, times);
    }
  }
}

TEST_CASE("two ranks that die at once, and all but one: the others name one of them") {
  std::mt19937 random(20261124);
  for (const bool all_but_one : {false, true}) {
    detection times(all_but_one ? "kill -9 of all ranks but one" : "kill -9 of two ranks at once");
    for (int round = 0; round < runs(6); ++round) {
      const int size = 4;
      std::vector<int> order{0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), random);
      const std::vector<int> victims(order.begin(), order.begin() + (all_but_one ? size - 1 : 2));
      const std::size_t count = round % 2 == 0 ? 1000 : 300'000;
      CAPTURE(victims[0]);
      CAPTURE(victims[1]);
      CAPTURE(count);
      const auto main = [=](colls::world& world, const line& test) -> task<> {
        test.say("ready");
        co_await work(world, count);
      };
      job all(size, main, {.transport = round % 2 == 0 ? hybrid() : network()});
      CHECK(all.all_say("ready"));
      ::usleep(static_cast<unsigned>(random() % 30'000));
      const double killed_at = now();
      for (const int victim : victims) all.kill(victim);
      check_named(all, victims, killed_at, times);
    }
  }
}

TEST_CASE("kill -9 of a rank while communicators are made") {
  std::mt19937 random(20261125);
  detection times("kill -9 in a split");
  for (int round = 0; round < runs(8); ++round) {
    const int size = 2 + round % 3;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    CAPTURE(size);
    CAPTURE(victim);
    const auto main = [=](colls::world& world, const line& test) -> task<> {
      test.say("ready");
      for (int i = 0;; ++i) {
        auto part = co_await world.split(world.rank() % 2, i % 2 == 0 ? 0 : -world.rank());
        auto same = co_await world.dup();
        std::vector<int> one(10, 1);
        co_await part.all_reduce(one);
        co_await same.barrier();
      }
    };
    job all(size, main, {.transport = round % 2 == 0 ? hybrid() : network()});
    CHECK(all.all_say("ready"));
    ::usleep(static_cast<unsigned>(random() % 30'000));
    const double killed_at = now();
    all.kill(victim);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const ending& end = all.wait(rank);
      // `part` is without the victim: a rank that has failed elsewhere destroys it, and those that
      // still use it learn that alone.
      const bool has_lost_part =
          end.code == errc::closed && end.culprit != victim && end.culprit % 2 == rank % 2;
      if (has_lost_part) continue;
      check_named(all, rank, {victim}, killed_at, times);
    }
  }
}

TEST_CASE("kill -9 of a rank while connections to it open") {
  std::mt19937 random(20261126);
  detection times("kill -9 while connections open");
  for (int round = 0; round < runs(12); ++round) {
    const int size = 3 + round % 3;
    const int victim = round % size;
    CAPTURE(size);
    CAPTURE(victim);
    const auto main = [=](colls::world& world, const line& test) -> task<> {
      test.say("ready");
      test.hear();
      std::vector<int> blocks(100 * static_cast<std::size_t>(size));
      co_await world.all_to_all<colls::algorithm::linear>(blocks, blocks);  // all pairs connect
      co_await work(world, 1000);
    };
    job all(size, main, {.transport = round % 2 == 0 ? hybrid() : network()});
    REQUIRE(all.all_say("ready"));
    for (int rank = 0; rank < size; ++rank) all.tell(rank);
    ::usleep(static_cast<unsigned>(random() % 3'000));
    const double killed_at = now();
    all.kill(victim);
    check_named(all, victim, killed_at, times);
  }
}

TEST_CASE("kill -9 of a rank whose memory is being read ends its readers") {
  std::mt19937 random(20261122);
  detection times("kill -9 of a rank whose memory is read");
  for (int round = 0; round < 12; ++round) {
    const int size = 2 + round % 2;
    const int victim = round % size;
    const std::size_t count = round % 3 == 0 ? 2'000'000 : 60'000;
    CAPTURE(size);
    CAPTURE(victim);
    CAPTURE(count);
    const auto main = [=](colls::world& world, const line& test) -> task<> {
      test.say("ready");
      co_await copy_without_end(world, count);
    };
    job all(size, main, {.reads = "always"});
    CHECK(all.all_say("ready"));
    ::usleep(20'000 + static_cast<unsigned>(random() % 30'000));
    const double killed_at = now();
    all.kill(victim);
    check_named(all, victim, killed_at, times);
  }
}

TEST_CASE("killed between operations: every rank that enters the next one is told") {
  // Between the operations ranks poll nothing, or poll until they are told of the death. There are
  // connections before, or none.
  detection times("kill -9 between operations");
  for (const bool deaf : {true, false}) {
    for (const bool connected : {true, false}) {
      for (const int victim : {0, 1, 3}) {
        CAPTURE(deaf);
        CAPTURE(connected);
        CAPTURE(victim);
        job all(4, [=](colls::world& world, const line& test) -> task<> {
          std::vector<int> data(100, 1);
          if (connected) co_await world.all_reduce(data);
          test.say("between");
          if (deaf) test.hear();
          while (!deaf && world.failed() == nullptr) {
            co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds);
          }
          co_await world.all_reduce(data);
        });
        REQUIRE(all.all_say("between"));
        double entered_at = now();
        all.kill(victim);
        if (deaf) {
          all.wait(victim);
          entered_at = now();
          for (int rank = 0; rank < 4; ++rank) {
            if (rank != victim) all.tell(rank);
          }
        }
        check_named(all, victim, entered_at, times);
      }
    }
  }
}

TEST_CASE("the death of a rank is seen though a child of it lives on") {
  detection times("kill -9 of a rank that has a child");
  for (const char* transport : transports()) {
    for (const int victim : {0, 1}) {
      CAPTURE(transport);
      CAPTURE(victim);
      const auto main = [=](colls::world& world, const line& test) -> task<> {
        co_await world.barrier();
        pid_t child = 0;
        if (world.rank() == victim) child = ::fork();
        if (world.rank() == victim && child == 0) {
          ::alarm(60);
          for (;;) ::pause();
        }
        test.say(std::to_string(child));
        co_await work(world, 1000);
      };
      job all(3, main, {.transport = transport});
      pid_t child = 0;
      for (int rank = 0; rank < 3; ++rank) child = std::max(child, std::stoi(all.hear(rank)));
      REQUIRE(child > 0);
      const double killed_at = now();
      all.kill(victim);
      check_named(all, victim, killed_at, times);
      CHECK(::kill(child, SIGKILL) == 0);
    }
  }
}

TEST_CASE("a child of a rank may destroy its world, at the limit on open files too") {
  detection times("kill -9 beside a child's end");
  for (const char* transport : transports()) {
    for (const int parent : {0, 1}) {
      // The rank that serves the store has the most sockets.
      const bool full = parent == 0;
      CAPTURE(transport);
      CAPTURE(parent);
      const auto main = [=](colls::world& world, const line& test) -> task<> {
        std::vector<int> data(1000, 1);
        co_await world.all_reduce(data);
        if (world.rank() == parent) {
          auto in_flight = world.barrier();
          std::vector<colls::detail::descriptor> rest;
          if (full) rest = take_all_descriptors();
          const pid_t child = ::fork();
          if (child == 0) {
            const int live = live_sockets();
            {
              const colls::world gone = std::move(world);
            }
            // The sockets of another library stay open.
            ::_exit(live == 0 || only_transport() != nullptr ? 7 : 8);
          }
          rest.clear();
          int status = 0;
          ::waitpid(child, &status, 0);
          test.say(std::to_string(WEXITSTATUS(status)));
          co_await in_flight;
        } else {
          test.say("7");
          test.hear();
          co_await world.barrier();
        }
        for (int i = 0; i < 20; ++i) co_await world.all_reduce(data);
        test.say("went on");
        co_await work(world, 1000);
      };
      job all(3, main, {.transport = transport});
      CHECK(all.all_say("7"));
      for (int rank = 0; rank < 3; ++rank) {
        if (rank != parent) all.tell(rank);
      }
      CHECK(all.all_say("went on"));
      const double killed_at = now();
      all.kill(2);
      check_named(all, 2, killed_at, times);
    }
  }
}

TEST_CASE("what a child of a rank calls fails, and its parent's sums stay right") {
  constexpr std::size_t count = 1 << 18;
  constexpr colls::options direct{.algorithm = colls::algorithm::direct};
  const auto main = [=](colls::world& world, const line& test) -> task<> {
    std::vector<int> data(count);
    bool right = true;
    for (int i = 0; i < 200; ++i) {
      // In some rounds the others come late, and a child calls while the parent waits for them.
      const bool has_child = i % 50 == 20;
      const pid_t child = has_child && world.rank() == 0 ? ::fork() : -1;
      std::fill(data.begin(), data.end(), child == 0 ? 1'000'000 : i);
      if (child == 0 || (has_child && world.rank() != 0)) ::usleep(child == 0 ? 100'000 : 300'000);
      colls::operation<> sum = world.all_reduce(data, direct);
      if (child == 0) {
        ::alarm(30);
        errc code{};
        try {
          colls::sync_wait(world, sum);
        } catch (const colls::error& thrown) {
          code = thrown.record().code;
        }
        {
          const colls::world gone = std::move(world);
        }
        ::_exit(code == errc::closed ? 7 : 1);
      }
      co_await sum;
      right &= std::count(data.begin(), data.end(), 3 * i) == std::ssize(data);
      if (child < 0) continue;
      int status = 0;
      ::waitpid(child, &status, 0);
      right &= WEXITSTATUS(status) == 7;
    }
    test.say(right ? "went on" : "went wrong");
    co_await world.barrier();
  };
  job all(3, main);
  CHECK(all.all_say("went on"));
}

TEST_CASE("a rank that waits for a living rank is told of a rank that died") {
  for (const int victim : {0, 2}) {
    CAPTURE(victim);
    const int sender = 2 - victim;
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      int token = 0;
      if (world.rank() == 1) {
        auto taking = world.recv(std::span(&token, 1), sender);
        (void)taking.done();
        test.say("waiting");
        (void)co_await taking;
      } else {
        test.say("waiting");
        // It polls and calls nothing, and learns of the death at its next call.
        while (!test.told()) {
          co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds);
        }
        co_await world.barrier();
      }
    });
    REQUIRE(all.all_say("waiting"));
    const double killed_at = now();
    all.kill(victim);
    const ending& end = all.wait(1);
    CHECK(end.time - killed_at < promised);
    all.tell(sender);
    CHECK(all.wait(sender).culprit == victim);
    CHECK(end.culprit == victim);
  }
}

TEST_CASE("a communicator that contains the dead rank fails, one without it goes on") {
  // Ranks 0 to 2 and 3 to 5; the connections of a group are open before the death, or not.
  for (const int victim : {0, 1, 4}) {
    for (const bool connected : {true, false}) {
      CAPTURE(victim);
      CAPTURE(connected);
      const auto is_with_victim = [=](int rank) { return rank / 3 == victim / 3; };
      job all(6, [=](colls::world& world, const line& test) -> task<> {
        auto half = co_await world.split(world.rank() / 3);
        if (is_with_victim(world.rank())) {
          test.say("ready");
          co_await work(half, 1000);
        }
        std::vector<int> sums(10'000, 1);
        std::vector<int> blocks(3 * sums.size());
        if (connected) co_await half.all_reduce(sums);
        test.say("ready");
        test.hear();
        bool right = true;
        for (int i = 0; i < 50; ++i) {
          sums.assign(sums.size(), world.rank());
          co_await half.all_reduce(sums);
          right &= sums.back() == (world.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5);
          co_await half.all_to_all(blocks, blocks);
        }
        test.say(right ? "went on" : "went wrong");
        co_await world.barrier();
      });
      REQUIRE(all.all_say("ready"));
      const double killed_at = now();
      all.kill(victim);
      for (int rank = 0; rank < 6; ++rank) {
        if (is_with_victim(rank)) all.wait(rank);
      }
      for (int rank = 0; rank < 6; ++rank) {
        if (!is_with_victim(rank)) all.tell(rank);
      }
      for (int rank = 0; rank < 6; ++rank) {
        if (!is_with_victim(rank)) CHECK(all.hear(rank) == "went on");
      }
      for (int rank = 0; rank < 6; ++rank) {
        if (rank == victim) continue;
        CAPTURE(rank);
        const ending& end = all.wait(rank);
        CAPTURE(end.message);
        CHECK(end.code == errc::peer_failed);
        CHECK(end.culprit == victim);
        if (is_with_victim(rank)) CHECK(end.time - killed_at < promised);
      }
    }
  }
}

TEST_CASE("killed while the world ends: no rank waits for it") {
  std::mt19937 random(7);
  for (int round = 0; round < 24; ++round) {
    const int size = 2 + round % 3;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const unsigned delay = static_cast<unsigned>(random() % 4'000);
    CAPTURE(size);
    CAPTURE(victim);
    CAPTURE(delay);
    job all(size, [=](colls::world& world, const line& test) -> task<> {
      std::vector<float> data(10'000, 1);
      test.say("ready");
      for (int i = 0; i < 4; ++i) co_await world.all_reduce(data);
    });
    REQUIRE(all.all_say("ready"));
    ::usleep(delay);
    const double killed_at = now();
    all.kill(victim);
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      const ending& end = all.wait(rank);
      CAPTURE(rank);
      CAPTURE(end.message);
      CHECK((end.status == 0 || end.status == 1));
      CHECK((end.code == errc{} || end.culprit == victim));
    }
    CHECK(now() - killed_at < promised);
  }
}

TEST_CASE("under colls-run a killed rank is named by the launcher and by every other rank") {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 0) != 0) {
    MESSAGE("skipped: this system (an emulator) lets no process adopt orphans, as colls-run does");
    return;
  }
  for (const int victim : {0, 2}) {
    CAPTURE(victim);
    launcher_test::run it(
        {"-n", "3", "sh", "-c", "echo rank $COLLS_RANK is $$; exec examples/bandwidth"});
    const std::string says = "rank " + std::to_string(victim) + " is ";
    REQUIRE(it.shows(says));
    const pid_t pid = std::atoi(it.out().c_str() + it.out().find(says) + says.size());
    REQUIRE(wait_for_shared_memory(pid));
    ::kill(pid, SIGKILL);
    CHECK(it.wait() == 128 + SIGKILL);
    CAPTURE(it.err());
    const std::string name = "rank " + std::to_string(victim);
    CHECK(it.shows("peer_failed: " + name, 2));
    CHECK(contains(it.err(), "colls-run: " + name + " failed: killed by SIGKILL"));
    CHECK(it.left().empty());
  }
}

TEST_CASE("kill -9 of a rank that works in its peers' memory") {
  std::mt19937 random(7);
  for (int round = 0; round < 8; ++round) {
    const int size = 2 + round % 3;
    const int victim = static_cast<int>(random() % static_cast<unsigned>(size));
    const std::size_t count = round % 2 == 0 ? 1'000'000 : 100'000;
    CAPTURE(round);
    job all(size, [=](colls::world& world, const line& test) -> task<> {
      co_await world.barrier();
      test.say("ready");
      co_await work_in_exposed_memory(world, test, count, std::chrono::minutes(1));
    });
    CHECK(all.all_say("ready"));
    ::usleep(static_cast<unsigned>(20'000 + random() % 30'000));
    all.kill(victim);
    all.wait(victim);
    for (int rank = 0; rank < size; ++rank) {
      if (rank != victim) CHECK(all.hear(rank) == "has given up");
    }
    for (int rank = 0; rank < size; ++rank) {
      if (rank == victim) continue;
      all.tell(rank);
      const ending& end = all.wait(rank);
      CAPTURE(end.message);
      CHECK(end.code == errc::peer_failed);
      CHECK(end.culprit == victim);
    }
  }
}

TEST_CASE(
    "a rank that is stopped while it copies what a peer exposes gets an error, not empty pages") {
  // Rank 1 stops in a copy of rank 0's block, so rank 0 moves the block. Rank 2 stops in a copy
  // from the same block for another communicator.
  constexpr std::size_t count = 400'000;
  job all(3, [=](colls::world& world, const line& test) -> task<> {
    const std::vector zero_and_one{0, 1};
    const std::vector zero_and_two{0, 2};
    colls::world with_one = co_await world.group(zero_and_one);
    colls::world with_two = co_await world.group(zero_and_two);
    colls::shared_buffer<int> block = world.allocate<int>(2 * count);
    std::fill(block.begin(), block.end(), 5);
    std::vector<int> own(count);
    const std::span whole(block.data(), block.size());
    const auto broadcast_half = [&](colls::world& comm, std::size_t half) {
      const std::span data =
          world.rank() == 0 ? whole.subspan(half * count, count) : std::span(own);
      const auto limit = std::chrono::milliseconds(comm.rank() == 0 && half == 0 ? 2000 : 60'000);
      return comm.broadcast(data, 0, {.algorithm = colls::algorithm::direct, .timeout = limit});
    };
    const auto use = [&](int reader) -> task<> {
      colls::world& comm = reader == 1 ? with_one : with_two;
      if (world.rank() != 0 && world.rank() != reader) co_return;
      co_await broadcast_half(comm, reader == 1 ? 0 : 1);
    };
    for (int turn = 0; turn < 20; ++turn) {  // until both have mapped each other's memory
      co_await use(1);
      co_await use(2);
      co_await world.barrier();
    }
    std::optional<held_page> held;
    // Rank 1 stops in the last piece of its copy, rank 2 in the first.
    if (world.rank() == 1) held.emplace(reinterpret_cast<std::byte*>(&own[count - 2048]), test);
    if (world.rank() == 2) held.emplace(reinterpret_cast<std::byte*>(own.data()), test);
    const auto outcome = [&](int reader) -> task<std::string> {
      try {
        std::fill(own.begin(), own.begin() + 1, 0);
        co_await use(reader);
      } catch (const colls::error& failed) {
        co_return failed.what();
      }
      const bool right = std::count(own.begin(), own.end(), 5) == std::ssize(own);
      co_return right ? "right" : "wrong data";
    };
    std::string said;
    if (world.rank() == 0) {
      task<std::string> other = outcome(2);
      task<std::string> first = outcome(1);
      colls::when_all both(std::move(other), std::move(first));
      auto [of_two, of_one] = co_await both;
      said = of_one + "; " + of_two;
    } else {
      task<std::string> mine = outcome(world.rank());
      said = co_await mine;
    }
    test.say(said);
    test.hear();
  });
  for (const int rank : {1, 2}) CHECK(all.hear(rank) == "is inside");
  const std::string owner = all.hear(0);
  CAPTURE(owner);
  CHECK(contains(owner, "timeout"));
  CHECK(contains(owner, "peer_failed"));
  for (const int rank : {1, 2}) {
    all.tell(rank);
    const std::string text = all.hear(rank);
    CAPTURE(rank);
    CAPTURE(text);
    CHECK(contains(text, rank == 1 ? "timeout" : "was stopped while it worked in memory"));
  }
  for (int rank = 0; rank < 3; ++rank) all.tell(rank);
}

TEST_CASE("a rank that is stopped in its peers' memory finds other pages when it goes on") {
  std::mt19937 random(8);
  for (int round = 0; round < 6; ++round) {
    CAPTURE(round);
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      co_await world.barrier();
      test.say("ready");
      co_await work_in_exposed_memory(world, test, 1'000'000, std::chrono::milliseconds(1500));
    });
    CHECK(all.all_say("ready"));
    ::usleep(static_cast<unsigned>(20'000 + random() % 30'000));
    all.stop(2);
    for (const int rank : {0, 1}) CHECK(all.hear(rank) == "has given up");
    all.go_on(2);
    CHECK(all.hear(2) == "has given up");
    for (int rank = 0; rank < 3; ++rank) all.tell(rank);
    for (int rank = 0; rank < 2; ++rank) {
      const ending& end = all.wait(rank);
      CAPTURE(end.message);
      CHECK(end.code == errc::timeout);
    }
  }
}
