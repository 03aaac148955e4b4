// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Processes that cannot form a world report what or which rank is missing and what to do, in one
// line, in time.

#include <colls/bootstrap/launcher_environment.hpp>

#include "launcher.hpp"
#include "processes.hpp"

#include <sys/mount.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <thread>

using namespace processes;

namespace {

task<> sum(colls::world& world, const line&) {
  int one[] = {1};
  co_await world.all_reduce(one);
  if (one[0] != world.size()) throw std::runtime_error("a wrong sum");
}

// Returns a port below the range from which the system draws ports.
int next_port() {
  static int which = 0;
  return 12000 + ::getpid() % 400 * 20 + which++;
}

std::string at(int port) { return "127.0.0.1:" + std::to_string(port); }

strings by_hand(int rank, int size, int port, strings more = {}) {
  strings all{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
              "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
              "COLLS_JOIN_TIMEOUT=2.5"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Relays the HELLOs between a rank and the store, in both directions, and changes a byte in each.
class changing_relay {
 public:
  changing_relay(int port, std::size_t byte, std::byte mask)
      : target_(port), byte_(byte), mask_(mask) {
    REQUIRE(!listener_.listen({boost::asio::ip::address_v4::loopback(), 0}));
    thread_ = std::thread([this] { run(); });
  }
  ~changing_relay() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return listener_.local().port(); }

 private:
  void run() {
    while (!stop_) {
      pollfd ready{listener_.descriptor(), POLLIN, 0};
      if (::poll(&ready, 1, 20) != 1) continue;
      const colls::detail::descriptor rank = listener_.accept();
      const colls::endpoint where(boost::asio::ip::address_v4::loopback(),
                                  static_cast<std::uint16_t>(target_));
      const colls::detail::descriptor store(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      const timeval limit{1, 0};
      for (const int each : {rank.get(), store.get()}) {
        ::fcntl(each, F_SETFL, 0);
        ::setsockopt(each, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      }
      if (::connect(store.get(), where.data(), static_cast<socklen_t>(where.size())) != 0) continue;
      if (!pass(rank.get(), store.get())) continue;
      pass(store.get(), rank.get());
    }
  }
  bool pass(int from, int to) const {
    colls::hello_bytes hello{};
    if (::recv(from, hello.data(), hello.size(), MSG_WAITALL) != std::ssize(hello)) return false;
    hello[byte_] ^= mask_;
    return ::send(to, hello.data(), hello.size(), MSG_NOSIGNAL) == std::ssize(hello);
  }

  int target_;
  std::size_t byte_;
  std::byte mask_;
  colls::listener listener_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Replaces the content of a file by `text` for this process only. Needs root.
void replace_file(const char* path, const std::string& text) {
  const std::string mine = "/tmp/colls-joining-file-" + std::to_string(::getpid());
  std::ofstream(mine) << text;
  const bool done = ::unshare(CLONE_NEWNS) == 0 &&
                    ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    ::mount(mine.c_str(), path, nullptr, MS_BIND, nullptr) == 0;
  std::filesystem::remove(mine);
  if (!done) ::_exit(77);
}

bool is_root() {
  if (::geteuid() != 0) MESSAGE("skipped: needs root");
  return ::geteuid() == 0;
}

/// Checks that the rank fails, with one line that contains all `parts`.
void check_line(job& all, int rank, const strings& parts) {
  CAPTURE(rank);
  CHECK(all.wait(rank).status == 1);
  const std::string text = all.log(rank);
  CAPTURE(text);
  strings lines = launcher_test::lines_of(text);
  // The last lines may be those of a sanitizer.
  std::erase_if(lines, [](const std::string& line) { return line.starts_with("=="); });
  REQUIRE(!lines.empty());
  CHECK(lines.back().starts_with("colls: "));
  for (const std::string& part : parts) {
    CAPTURE(part);
    CHECK(contains(lines.back(), part));
  }
}

}  // namespace

TEST_CASE("variables that are missing or make no sense are reported at once") {
  const struct {
    strings environment;
    strings says;
  } all[] = {
      {{"RANK=0"}, {"join_failed", "WORLD_SIZE", "RANK=0"}},
      {{"WORLD_SIZE=2"}, {"join_failed", "RANK", "WORLD_SIZE=2"}},
      {{"RANK=0", "WORLD_SIZE=2"}, {"join_failed", "MASTER_ADDR"}},
      {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1"}, {"join_failed", "MASTER_PORT"}},
      {by_hand(2, 2, 9), {"join_failed", "rank 2 of 2", "RANK=2", "WORLD_SIZE=2"}},
      {{"MASTER_ADDR=127.0.0.1"}, {"join_failed", "RANK and WORLD_SIZE"}},
      {{"RANK=zero", "WORLD_SIZE=2"}, {"join_failed", "RANK=zero"}},
      {by_hand(0, 2, 9, {"COLLS_JOIN_TIMEOUT=soon"}),
       {"join_failed", "COLLS_JOIN_TIMEOUT", "soon"}},
      {by_hand(0, 2, 9, {"COLLS_READS=maybe"}), {"join_failed", "COLLS_READS=maybe"}},
      {by_hand(0, 2, 9, {"COLLS_SECRET_FILE=/nowhere"}), {"/nowhere"}},
      {{"COLLS_RANK=0", "COLLS_WORLD_SIZE=2"}, {"join_failed", "COLLS_STORE"}},
      {{"COLLS_RANK=0", "COLLS_WORLD_SIZE=2", "COLLS_STORE=127.0.0.1:9"}, {"tcp://host:port"}},
      {{"SLURM_NTASKS=4", "SLURM_JOB_ID=7"}, {"join_failed", "srun", "SLURM_NTASKS=4"}},
  };
  for (const auto& [environment, says] : all) {
    CAPTURE(environment.front());
    const double began = now();
    job one({environment}, sum);
    check_line(one, 0, says);
    CHECK(now() - began < 3);
  }
}

TEST_CASE("an OpenSSL that has no SHA-256: the ranks and the launcher say so at once") {
  const std::string path = "/tmp/colls-openssl." + std::to_string(::getpid()) + ".cnf";
  std::ofstream(path) << "openssl_conf = i\n[i]\nproviders = p\n[p]\nbase = b\n[b]\nactivate = 1\n";
  const double began = now();
  for (int rank = 0; rank < 2; ++rank) {
    job one({by_hand(rank, 2, next_port(), {"OPENSSL_CONF=" + path})}, sum);
    check_line(one, 0, {"crypto_failed", "SHA-256", "OPENSSL_CONF"});
  }
  CHECK(now() - began < 3);
  launcher_test::run launched({"-n", "2", "true"}, {.environment = {"OPENSSL_CONF=" + path}});
  CHECK(launched.wait() == 1);
  CHECK(contains(launched.err(), "crypto_failed"));
  CHECK(contains(launched.err(), "OPENSSL_CONF"));
  std::filesystem::remove(path);
}

TEST_CASE("a misspelt variable is warned about") {
  job one({strings{"COLLS_TIMOUT=5"}}, sum);
  CHECK(one.wait(0).status == 0);
  CHECK(contains(one.log(0), "COLLS_TIMOUT"));
  CHECK(contains(one.log(0), "COLLS_TIMEOUT"));
}

TEST_CASE("ranks that never come are named, within the deadline") {
  const int port = next_port();
  const double began = now();
  job all({by_hand(0, 5, port), by_hand(2, 5, port), by_hand(4, 5, port)}, sum);
  for (int i = 0; i < 3; ++i) {
    check_line(all, i, {"join_timeout", at(port), "ranks 1, 3 of 5", "start them"});
  }
  CHECK(now() - began < 8);
}

TEST_CASE("a rank that is killed before it joins is a rank that never comes") {
  const int port = next_port();
  job all({by_hand(0, 3, port), by_hand(1, 3, port)}, sum);
  for (int i = 0; i < 2; ++i) check_line(all, i, {"join_timeout", "rank 2 of 3", "start it"});
}

TEST_CASE("no process listens at the port, or one that is not colls") {
  const int port = next_port();
  const double began = now();
  job alone({by_hand(1, 2, port)}, sum);
  check_line(alone, 0, {"unreachable", "rank 1 of 2", at(port), "refused", "start rank 0 there"});

  colls::listener other;
  REQUIRE(!other.listen({boost::asio::ip::address_v4::loopback(), 0}));
  job silent({by_hand(1, 2, other.local().port())}, sum);
  check_line(silent, 0,
             {"unreachable", "rank 1 of 2", at(other.local().port()), "no rank 0 of this user"});
  CHECK(now() - began < 15);
}

TEST_CASE("an address that does not answer, a name that does not exist") {
  // Reserved for documentation: no host has it.
  strings far = by_hand(1, 2, 29500);
  far[2] = "MASTER_ADDR=192.0.2.1";
  far.push_back("COLLS_SECRET=s");
  strings unknown = by_hand(1, 2, 29500);
  unknown[2] = "MASTER_ADDR=no-such-host.invalid";
  const double began = now();
  job all({far, unknown}, sum);
  check_line(all, 0, {"unreachable", "rank 1 of 2", "192.0.2.1:29500"});
  check_line(all, 1, {"resolve_failed", "rank 1 of 2", "no-such-host.invalid"});
  CHECK(now() - began < 20);
  strings elsewhere = by_hand(0, 2, 29500);
  elsewhere[2] = "MASTER_ADDR=192.0.2.1";
  elsewhere.push_back("COLLS_SECRET=s");
  job not_here({elsewhere}, sum);
  check_line(not_here, 0, {"rank 0 cannot listen", "192.0.2.1:29500", "MASTER_ADDR"});
}

TEST_CASE("the port belongs to another program") {
  colls::listener other;
  REQUIRE(!other.listen({boost::asio::ip::address_v4::loopback(), 0}));
  const int port = other.local().port();
  job all({by_hand(0, 2, port), by_hand(1, 2, port)}, sum);
  check_line(all, 0, {"address_in_use", "rank 0", at(port), "another MASTER_PORT"});
  check_line(all, 1, {"unreachable", "rank 1 of 2", at(port)});
}

TEST_CASE("a wrong secret fails where it is wrong, the others miss that rank") {
  const int port = next_port();
  const strings right{"COLLS_SECRET=right"};
  job all({by_hand(0, 3, port, right), by_hand(1, 3, port, {"COLLS_SECRET=wrong"}),
           by_hand(2, 3, port, right)},
          sum);
  check_line(all, 1, {"rank 1: auth_failed", at(port), "COLLS_SECRET"});
  for (const int rank : {0, 2}) check_line(all, rank, {"join_timeout", "rank 1 of 3"});
}

TEST_CASE("programs that a rank starts do not inherit the job's secret") {
  const int port = next_port();
  const strings right{"COLLS_SECRET=right"};
  const auto main = [](colls::world& world, const line& test) -> task<> {
    co_await sum(world, test);
    const bool inherits = ::system("test -n \"$COLLS_SECRET\"") == 0;
    test.say(inherits ? "inherits" : "does not inherit");
    test.say(colls::environment().secret.str());
  };
  for (const int size : {1, 2}) {
    CAPTURE(size);
    std::vector<strings> environments;
    for (int rank = 0; rank < size; ++rank) {
      environments.push_back(by_hand(rank, size, port, right));
    }
    job all(environments, main);
    for (int rank = 0; rank < size; ++rank) {
      CHECK(all.hear(rank) == "does not inherit");
      CHECK(all.hear(rank) == "right");
      CHECK(all.wait(rank).status == 0);
    }
  }
}

TEST_CASE("a rank of another wire version or number format gets the reason, and rank 0 logs it") {
  const struct {
    std::size_t byte;
    std::byte mask;
    strings says;
    const char* warns;
  } all[] = {
      {8,
       std::byte{0x40},
       {"version_mismatch", "speaks wire version", "build every rank"},
       "speaks wire version"},
      {11, std::byte{1}, {"version_mismatch", "another number format"}, "another number format"},
  };
  for (const auto& [byte, mask, says, warns] : all) {
    CAPTURE(warns);
    const int port = next_port();
    job first({by_hand(0, 2, port, {"COLLS_SECRET=s"})}, sum);
    const changing_relay between(port, byte, mask);
    const double began = now();
    job second({by_hand(1, 2, between.port(), {"COLLS_SECRET=s", "COLLS_JOIN_TIMEOUT=20"})}, sum);
    check_line(second, 0, says);
    CHECK(now() - began < 5);
    check_line(first, 0, {"join_timeout", "rank 1 of 2"});
    const std::string log = first.log(0);
    CAPTURE(log);
    CHECK(contains(log, "turned away at 127.0.0.1:" + std::to_string(port)));
    CHECK(contains(log, warns));
  }
}

TEST_CASE("too many open files for all ranks: both sides say so, in time") {
  constexpr int size = 16;
  const int port = next_port();
  std::vector<strings> environments;
  for (int rank = 0; rank < size; ++rank) {
    environments.push_back(by_hand(rank, size, port, {"COLLS_JOIN_TIMEOUT=8"}));
  }
  const double began = now();
  job all(environments, sum, {.address = "env://"}, [](colls::config&) {
    const rlimit few{24, 24};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0) ::_exit(3);
    // Otherwise the others may take the descriptors with which rank 0 itself listens.
    if (std::string(std::getenv("RANK")) != "0") ::usleep(300'000);
  });
  check_line(all, 0,
             {"rank 0: too_many_files", at(port), "for ranks ",
              "of 16 and could not take "
              "connections: Too many open files",
              "ulimit -n"});
  int outside = 0;
  for (int rank = 1; rank < size; ++rank) {
    CAPTURE(rank);
    CHECK(all.wait(rank).status == 1);
    const std::string log = all.log(rank);
    CAPTURE(log);
    if (!contains(log, "did not reach the store")) continue;
    ++outside;
    CHECK(contains(log, "too_many_files"));
    CHECK(contains(log, " has too many open files"));
  }
  CHECK(outside > 0);
  CHECK(now() - began < 20);
}

TEST_CASE("a name with several addresses: rank 0 serves at all, a rank finds one where it does") {
  if (!is_root()) return;
  const int port = next_port();
  const strings patient{"COLLS_JOIN_TIMEOUT=20", "COLLS_SECRET=s"};
  const auto at_host = [&](int rank, const char* host) {
    strings environment = by_hand(rank, 3, port, patient);
    environment[2] = std::string("MASTER_ADDR=") + host;
    return environment;
  };
  // Rank 0 listens at both addresses of `both`. At the first address of `some` no process listens.
  const auto names = [](colls::config&) {
    replace_file("/etc/hosts", "127.0.0.5 both\n127.0.0.6 both\n127.0.0.7 some\n127.0.0.6 some\n");
  };
  job all({at_host(0, "both"), at_host(1, "some"), at_host(2, "127.0.0.5")}, sum,
          {.address = "env://"}, names);
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(all.log(rank));
    CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE(
    "an address of a name cannot be used: ranks try the others, and rank 0 serves at all or none") {
  if (!is_root()) return;
  const int port = next_port();
  const auto at_host = [&](int rank, const char* host, const char* secret) {
    strings environment =
        by_hand(rank, 2, port, {"COLLS_JOIN_TIMEOUT=20", std::string("COLLS_SECRET=") + secret});
    environment[2] = std::string("MASTER_ADDR=") + host;
    return environment;
  };
  const auto names = [](colls::config&) {
    replace_file("/etc/hosts", "127.0.0.5 both\n127.0.0.6 both\n");
  };
  const auto until_taken = [&](const char* host) {
    bool taken = false;
    for (const double began = now(); !taken && now() - began < 20; ::usleep(1000)) {
      colls::listener probe;
      taken = static_cast<bool>(
          probe.listen({boost::asio::ip::make_address(host), static_cast<std::uint16_t>(port)}));
    }
    REQUIRE(taken);
  };
  job of_others({at_host(0, "127.0.0.5", "of others")}, sum);
  until_taken("127.0.0.5");
  job refused({at_host(0, "both", "ours")}, sum, {.address = "env://"}, names);
  check_line(refused, 0, {"address_in_use", "127.0.0.5:" + std::to_string(port)});
  job zero({at_host(0, "127.0.0.6", "ours")}, sum);
  until_taken("127.0.0.6");
  job one({at_host(1, "both", "ours")}, sum, {.address = "env://"}, names);
  for (job* const each : {&zero, &one}) {
    CAPTURE(each->log(0));
    CHECK(each->wait(0).status == 0);
  }
}

TEST_CASE("a store at a loopback address in a world of several hosts fails on all ranks") {
  if (!is_root()) return;
  const int port = next_port();
  const strings patient{"COLLS_JOIN_TIMEOUT=20", "COLLS_SECRET=s"};
  job here({by_hand(0, 3, port, patient), by_hand(1, 3, port, patient)}, sum);
  job elsewhere({by_hand(2, 3, port, patient)}, sum, {.address = "env://"}, [](colls::config&) {
    replace_file("/proc/sys/kernel/random/boot_id", "01234567-89ab-cdef-0123-456789abcdef\n");
  });
  const strings says{"join_failed", "listens on loopback and other ranks run on other hosts",
                     "MASTER_ADDR must be an address that all hosts reach"};
  for (const int rank : {0, 1}) check_line(here, rank, says);
  check_line(elsewhere, 0, says);
}

TEST_CASE("a second process with a rank that is taken is refused, and the world goes on") {
  const int port = next_port();
  const auto stay = [](colls::world& world, const line& test) -> task<> {
    test.say("in");
    while (!test.told()) {
      co_await world.net().driver().sleep_until(world.net().now() + colls::milliseconds);
    }
    auto work = sum(world, test);
    co_await work;
  };
  const strings patient{"COLLS_JOIN_TIMEOUT=20", "COLLS_LOG=debug"};
  job all({by_hand(0, 3, port, patient), by_hand(1, 3, port, patient)}, stay);
  REQUIRE(all.logs(1, "rank 1 listens at"));  // and has published that in the store
  job twin({by_hand(1, 3, port)}, sum);
  check_line(twin, 0, {"rank_taken", "rank 1", at(port)});
  job last({by_hand(2, 3, port)}, stay);
  CHECK(all.hear(0) == "in");
  CHECK(all.hear(1) == "in");
  job late({by_hand(1, 3, port), by_hand(0, 3, port)}, sum);
  check_line(late, 0, {"rank_taken", "rank 1", at(port)});
  check_line(late, 1, {"address_in_use", "rank 0", at(port)});
  for (const int rank : {0, 1}) all.tell(rank);
  last.tell(0);
  for (const int rank : {0, 1}) CHECK(all.wait(rank).status == 0);
  CHECK(last.wait(0).status == 0);
}

TEST_CASE("processes with different sizes of the world") {
  const int port = next_port();
  job all({by_hand(0, 2, port), by_hand(1, 3, port)}, sum);
  check_line(all, 1, {"join_failed", at(port), "2 ranks", "told 3"});
  check_line(all, 0, {"join_timeout", "rank 1 of 2"});
}

TEST_CASE("processes with different transports") {
  const int port = next_port();
  job all({by_hand(0, 3, port), by_hand(1, 3, port, {"COLLS_TRANSPORT=tcp"}), by_hand(2, 3, port)},
          sum);
  for (int rank = 0; rank < 3; ++rank) {
    check_line(all, rank,
               {"join_failed", "rank 0 was told to use hybrid and rank 1 tcp", "COLLS_TRANSPORT"});
  }
}

TEST_CASE("a process whose program has no UCX, or another version of it") {
  class library final : public colls::fabric {
   public:
    explicit library(std::string version) : version_(std::move(version)) {}
    std::string version() const override { return version_; }

   private:
    std::string version_;
  };
  for (const bool has_none : {true, false}) {
    const int port = next_port();
    const strings more{"COLLS_TRANSPORT=ucx"};
    job all({by_hand(0, 3, port, more), by_hand(1, 3, port, more), by_hand(2, 3, port, more)}, sum,
            {.address = "env://"}, [=](colls::config&) {
              static library first("1.13.1");
              static library other("1.22.0");
              const bool is_odd = std::string(std::getenv("RANK")) == "2";
              colls::detail::ucx_fabric = !is_odd ? &first : has_none ? nullptr : &other;
            });
    for (int rank = 0; rank < 3; ++rank) {
      if (has_none) {
        check_line(all, rank,
                   {"join_failed", "rank 2 was told to use ucx", "has no UCX", "-lucp -lucs"});
      } else {
        check_line(all, rank,
                   {"join_failed", "rank 0 was told to use ucx-1.13.1 and rank 2 ucx-1.22.0"});
      }
    }
  }
  job alone({{"COLLS_TRANSPORT=ucx"}}, sum, {.address = "env://"},
            [](colls::config&) { colls::detail::ucx_fabric = nullptr; });
  check_line(alone, 0, {"join_failed", "rank 0 was told to use ucx", "has no UCX"});
}

TEST_CASE("processes with and without checksums") {
  const int port = next_port();
  job all({by_hand(0, 3, port, {"COLLS_CHECKSUM=1"}), by_hand(1, 3, port, {"COLLS_CHECKSUM=1"}),
           by_hand(2, 3, port)},
          sum);
  for (int rank = 0; rank < 3; ++rank) {
    check_line(all, rank,
               {"join_failed", "rank 0 was told to work with checksums and rank 2 without",
                "COLLS_CHECKSUM"});
  }
}

TEST_CASE("killed while the world forms: the others are told at once") {
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    const int port = next_port();
    const strings patient{"COLLS_JOIN_TIMEOUT=20", "COLLS_LOG=debug"};
    job all(
        {by_hand(0, 4, port, patient), by_hand(1, 4, port, patient), by_hand(2, 4, port, patient)},
        sum);
    for (int rank = 0; rank < 3; ++rank) {
      REQUIRE(all.logs(rank, "rank " + std::to_string(rank) + " listens at"));
    }
    const double killed_at = now();
    all.kill(victim);
    for (int rank = 0; rank < 3; ++rank) {
      if (rank == victim) continue;
      check_line(all, rank, {"rank " + std::to_string(victim)});
    }
    CHECK(now() - killed_at < detection::at_most);
  }
}

TEST_CASE("rank 0 may compute as soon as it has joined") {
  job all(4, [](colls::world& world, const line& test) -> task<> {
    test.say("in");
    if (world.rank() == 0) test.hear();
    co_return;
  });
  CHECK(all.all_say("in", 5));
  all.tell(0);
  for (int rank = 0; rank < 4; ++rank) CHECK(all.wait(rank).status == 0);
}

TEST_CASE("a store file of an earlier job that died") {
  const std::string path = "/tmp/colls-joining-" + std::to_string(::getpid());
  const auto at_file = [&](int rank) {
    return strings{"COLLS_RANK=" + std::to_string(rank), "COLLS_WORLD_SIZE=2",
                   "COLLS_STORE=file://" + path, "COLLS_JOIN_TIMEOUT=10"};
  };
  {
    job died({at_file(0)}, sum);
    const auto is_made = [&] {
      std::error_code none;
      const auto size = std::filesystem::file_size(path, none);
      return !none && size > 0;
    };
    for (const double began = now(); !is_made() && now() - began < 10;) ::usleep(1000);
    died.kill(0);
    died.wait(0);
  }
  REQUIRE(std::filesystem::exists(path));
  const double began = now();
  job next({at_file(0), at_file(1)}, sum);
  for (const int rank : {0, 1}) check_line(next, rank, {"stale_store", path, "remove it"});
  CHECK(now() - began < 8);
  std::filesystem::remove(path);
  job fresh({at_file(0), at_file(1)}, sum);
  for (const int rank : {0, 1}) CHECK(fresh.wait(rank).status == 0);
  CHECK(!std::filesystem::exists(path));
}

TEST_CASE("under colls-run a rank that ends before it joins is named to the others at once") {
  const struct {
    const char* end;
    int status;
    const char* says;
  } all[] = {
      {"kill -KILL $$", 128 + SIGKILL, "killed by SIGKILL"},
      {"exit 3", 3, "exit code 3"},
      {"exit 0", 1, nullptr},  // no failure, but the others wait in vain
  };
  for (const auto& [end, status, says] : all) {
    CAPTURE(end);
    launcher_test::run it({"-n", "3", "sh", "-c",
                           "[ $COLLS_RANK = 1 ] && { sleep 0.3; " + std::string(end) +
                               "; }; exec examples/bandwidth"});
    CHECK(it.wait() == status);
    CAPTURE(it.err());
    if (says != nullptr)
      CHECK(contains(it.err(), "colls-run: rank 1 failed: " + std::string(says)));
    CHECK(count(it.err(), "] colls: rank 0: peer_failed: rank 1") == 1);
    CHECK(count(it.err(), "] colls: rank 2: peer_failed: rank 1") == 1);
    CHECK(it.seconds() < 4);
  }
}
