// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Every setting of a user has its effect, by every way to set it: the variables of
// docs/environment.md, the fields of `config`, the members of `options`. The table at the end names
// them all. Each is tested where a user would notice it.

#include "launcher.hpp"
#include "processes.hpp"

#include "../support/folder.hpp"
#include "../support/reads.hpp"

#include <colls/bootstrap/known_variables.hpp>
#include <colls/bootstrap/network_interfaces.hpp>
#include <colls/simulated.hpp>

#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <memory>
#include <regex>
#include <set>
#include <sstream>

using namespace processes;
using colls::config;
using colls::errc;
using namespace std::chrono_literals;

namespace {

/// Bytes that this process has read from other processes by the kernel.
std::size_t kernel_read = 0;

}  // namespace

/// Replaces the function of the C library.
extern "C" ssize_t process_vm_readv(pid_t from, const iovec* here, unsigned long parts,
                                    const iovec* there, unsigned long others,
                                    unsigned long flags) noexcept {
  const long got = ::syscall(SYS_process_vm_readv, from, here, parts, there, others, flags);
  if (got > 0) kernel_read += static_cast<std::size_t>(got);
  return got;
}

namespace {

// ---- ranks with settings

/// Returns a port below the range from which the system draws ports.
int next_port() {
  static int which = 0;
  return 30000 + ::getpid() % 50 * 20 + which++ % 20;
}

/// The settings of one rank: its environment, and a config beside it or alone.
struct rank_settings {
  strings environment;
  config cfg{.address = "env://"};
};

rank_settings by_hand(int rank, int size, int port, const strings& more = {}) {
  rank_settings one{{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
                     "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port)}};
  one.environment.insert(one.environment.end(), more.begin(), more.end());
  return one;
}
config by_config(int rank, int size, int port) {
  return {.rank = rank, .size = size, .address = "tcp://127.0.0.1:" + std::to_string(port)};
}

/// Ranks, each with its own settings.
class world_of {
 public:
  world_of(const std::vector<rank_settings>& ranks, const job::rank_main& main) {
    for (const rank_settings& one : ranks) {
      all_.push_back(std::make_unique<job>(std::vector<strings>{one.environment}, main, one.cfg));
    }
  }
  job& operator[](std::size_t rank) { return *all_[rank]; }
  std::string hear(std::size_t rank) { return all_[rank]->hear(0, 20); }
  ending end(std::size_t rank) { return all_[rank]->wait(0, 20); }
  std::string log(std::size_t rank) { return all_[rank]->log(0); }

 private:
  std::vector<std::unique_ptr<job>> all_;
};

/// A setting as a variable and as a field.
struct value {
  std::string variable;              // NAME=value; empty: there is none
  std::function<void(config&)> set;  // none: there is no field
};

/// Calls `check` with the ranks of a world that all have the setting `given`, once for each way to
/// set it: by a variable, by a field beside an environment with the rest, by a config with
/// everything.
template <class Check>
void by_every_way(int size, const value& given, const Check& check) {
  if (!given.variable.empty()) {
    CAPTURE(given.variable);
    std::vector<rank_settings> ranks;
    const int port = next_port();
    for (int r = 0; r < size; ++r) ranks.push_back(by_hand(r, size, port, {given.variable}));
    check(ranks);
  }
  for (const bool alone : {false, true}) {
    if (!given.set) break;
    CAPTURE(alone);
    std::vector<rank_settings> ranks;
    const int port = next_port();
    for (int r = 0; r < size; ++r) {
      ranks.push_back(alone ? rank_settings{{}, by_config(r, size, port)} : by_hand(r, size, port));
      given.set(ranks.back().cfg);
    }
    check(ranks);
  }
}

task<> meet(colls::world& world, const line&) { co_await world.barrier(); }

void check_meets(const std::vector<rank_settings>& ranks) {
  world_of all(ranks, meet);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    CHECK(all.end(r).status == 0);
    CAPTURE(all.log(r));
  }
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// ---- one function for each setting

void timeout() {
  const value given{"COLLS_TIMEOUT=600ms", [](config& cfg) { cfg.timeout = 600ms; }};
  by_every_way(2, given, [](const std::vector<rank_settings>& ranks) {
    world_of all(ranks, [](colls::world& world, const line& test) -> task<> {
      if (world.rank() == 1) {
        test.hear();
        co_return;
      }
      test.say("waits");
      co_await world.barrier();
    });
    REQUIRE(all.hear(0) == "waits");
    const double began = now();
    const ending end = all.end(0);
    all[1].tell(0);
    CHECK(end.code == errc::timeout);
    CHECK(end.time - began > 0.4);
    CHECK(end.time - began < 5);
  });
}

void timeout_of_a_call() {
  job all(2, [](colls::world& world, const line& test) -> task<> {
    if (world.rank() == 1) {
      test.hear();
      co_return;
    }
    test.say("waits");
    co_await world.barrier({.timeout = 600ms});
  });
  REQUIRE(all.hear(0) == "waits");
  const double began = now();
  const ending end = all.wait(0, 20);
  all.tell(1);
  CHECK(end.code == errc::timeout);
  CHECK(end.time - began < 5);
}

void join_timeout() {
  const value given{"COLLS_JOIN_TIMEOUT=700ms", [](config& cfg) { cfg.join_timeout = 700ms; }};
  by_every_way(2, given, [](std::vector<rank_settings> ranks) {
    ranks.pop_back();
    const double began = now();
    world_of all(ranks, meet);
    CHECK(all.end(0).status == 1);
    CHECK(contains(all.log(0), "join_timeout"));
    CHECK(now() - began > 0.6);
    CHECK(now() - began < 6);
  });
}

void rank_and_size() {
  const auto say = [](colls::world& world, const line& test) -> task<> {
    test.say(std::to_string(world.rank()) + " of " + std::to_string(world.size()));
    co_await world.barrier();
  };
  const auto check = [&](const std::vector<rank_settings>& ranks, const strings& wanted) {
    world_of all(ranks, say);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      CHECK(all.hear(r) == wanted[r]);
      CHECK(all.end(r).status == 0);
    }
  };
  int port = next_port();
  check({by_hand(1, 2, port), by_hand(0, 2, port)}, {"1 of 2", "0 of 2"});
  // The config of the program overrides the environment of the launcher.
  port = next_port();
  std::vector<rank_settings> other{by_hand(0, 3, port), by_hand(0, 3, port)};
  for (const int r : {0, 1}) {
    other[static_cast<std::size_t>(r)].cfg.rank = 1 - r;
    other[static_cast<std::size_t>(r)].cfg.size = 2;
  }
  check(other, {"1 of 2", "0 of 2"});
  port = next_port();
  check({{{}, by_config(2, 3, port)}, {{}, by_config(0, 3, port)}, {{}, by_config(1, 3, port)}},
        {"2 of 3", "0 of 3", "1 of 3"});
  // The variables that colls-run sets, with a file as the store.
  const folder place;
  const std::string store = "COLLS_STORE=file://" + place.path + "/store";
  check({{{"COLLS_RANK=1", "COLLS_WORLD_SIZE=2", store}},
         {{"COLLS_RANK=0", "COLLS_WORLD_SIZE=2", store}}},
        {"1 of 2", "0 of 2"});
  // The same address by a config.
  config file{.size = 2, .address = "file://" + place.path + "/other"};
  std::vector<rank_settings> alone;
  for (file.rank = 0; file.rank < 2; ++file.rank) alone.push_back({{}, file});
  check(alone, {"0 of 2", "1 of 2"});
}

void launchers() {
  const auto say = [](colls::world& world, const line& test) -> task<> {
    test.say(std::to_string(world.rank()) + " of " + std::to_string(world.size()));
    co_await world.barrier();
  };
  const std::string job_id = std::to_string(::getpid());
  const auto check = [&](const std::function<strings(const std::string&)>& of) {
    world_of all({{of("0")}, {of("1")}}, say);
    CHECK(all.hear(0) == "0 of 2");
    CHECK(all.hear(1) == "1 of 2");
    CHECK(all.end(0).status == 0);
    CHECK(all.end(1).status == 0);
  };
  check([&](const std::string& rank) {
    return strings{"OMPI_COMM_WORLD_RANK=" + rank, "OMPI_COMM_WORLD_SIZE=2",
                   "OMPI_COMM_WORLD_LOCAL_RANK=" + rank, "OMPI_COMM_WORLD_LOCAL_SIZE=2",
                   "PMIX_NAMESPACE=effects" + job_id};
  });
  check([&](const std::string& rank) {
    return strings{"PMI_RANK=" + rank, "PMI_SIZE=2", "MPI_LOCALRANKID=" + rank, "MPI_LOCALNRANKS=2",
                   "PMIX_NAMESPACE=effects-pmi" + job_id};
  });
  check([&](const std::string& rank) {
    return strings{"SLURM_PROCID=" + rank,   "SLURM_NTASKS=2",        "SLURM_STEP_NUM_TASKS=2",
                   "SLURM_STEP_ID=0",        "SLURM_LOCALID=" + rank, "SLURM_NODEID=0",
                   "SLURM_STEP_NUM_NODES=1", "SLURM_JOB_ID=" + job_id};
  });
}

/// If the launcher states that all ranks run on this host they meet on loopback, whatever
/// MASTER_ADDR names.
void one_host() {
  const std::string elsewhere = "198.51.100.7";  // reserved for documentation: no host has it
  const auto ranks_with = [&](const strings& more, const std::function<void(config&)>& set) {
    std::vector<rank_settings> ranks;
    const int port = next_port();
    for (int r = 0; r < 2; ++r) {
      ranks.push_back(by_hand(r, 2, port, {"COLLS_JOIN_TIMEOUT=3s", "COLLS_SECRET=s"}));
      ranks.back().environment[2] = "MASTER_ADDR=" + elsewhere;
      for (const std::string& each : more) ranks.back().environment.push_back(each);
      if (set) set(ranks.back().cfg);
    }
    return ranks;
  };
  world_of unreachable(ranks_with({}, nullptr), meet);
  CHECK(unreachable.end(0).status == 1);
  check_meets(ranks_with({"LOCAL_WORLD_SIZE=2"}, nullptr));
  check_meets(ranks_with({"GROUP_WORLD_SIZE=1"}, nullptr));
  check_meets(ranks_with({}, [](config& cfg) { cfg.local_size = 2; }));
  check_meets(ranks_with({}, [](config& cfg) { cfg.nodes = 1; }));
  for (const std::string variable : {"COLLS_LOCAL_WORLD_SIZE=2", "COLLS_NNODES=1"}) {
    const int port = next_port();
    std::vector<rank_settings> ranks;
    for (const char* rank : {"0", "1"}) {
      ranks.push_back({{std::string("COLLS_RANK=") + rank, "COLLS_WORLD_SIZE=2", variable,
                        "MASTER_ADDR=" + elsewhere, "MASTER_PORT=" + std::to_string(port),
                        "COLLS_SECRET=s", "COLLS_JOIN_TIMEOUT=3s"}});
    }
    check_meets(ranks);
  }
  for (const bool of_sizes : {true, false}) {
    std::vector<rank_settings> ranks;
    const int port = next_port();
    for (int r = 0; r < 2; ++r) {
      config cfg = by_config(r, 2, port);
      cfg.address = "tcp://" + elsewhere + ":" + std::to_string(port);
      cfg.secret = "s";
      (of_sizes ? cfg.local_size : cfg.nodes) = of_sizes ? 2 : 1;
      ranks.push_back({{}, cfg});
    }
    check_meets(ranks);
  }
}

/// The world has the local ranks that the launcher gives, in any order.
void local_rank() {
  const auto check = [](const std::vector<rank_settings>& ranks) {
    world_of all(ranks, [](colls::world& world, const line& test) -> task<> {
      test.say(std::to_string(world.local_rank()));
      co_await world.barrier();
    });
    CHECK(all.hear(0) == "1");
    CHECK(all.hear(1) == "0");
  };
  int port = next_port();
  check({by_hand(0, 2, port, {"LOCAL_RANK=1"}), by_hand(1, 2, port, {"LOCAL_RANK=0"})});
  const folder place;
  const std::string store = "COLLS_STORE=file://" + place.path + "/store";
  check({{{"COLLS_RANK=0", "COLLS_WORLD_SIZE=2", "COLLS_LOCAL_RANK=1", store}},
         {{"COLLS_RANK=1", "COLLS_WORLD_SIZE=2", "COLLS_LOCAL_RANK=0", store}}});
  for (const bool alone : {false, true}) {
    CAPTURE(alone);
    port = next_port();
    std::vector<rank_settings> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.push_back(alone ? rank_settings{{}, by_config(r, 2, port)} : by_hand(r, 2, port));
      ranks.back().cfg.local_rank = 1 - r;
    }
    check(ranks);
  }
}

/// A node number out of range is refused.
void node() {
  const auto check = [](const rank_settings& rank) {
    world_of all({rank}, meet);
    CHECK(all.end(0).status == 1);
    CAPTURE(all.log(0));
    CHECK(contains(all.log(0), "node 2 of 2"));
  };
  check(by_hand(0, 2, next_port(), {"GROUP_RANK=2", "GROUP_WORLD_SIZE=2"}));
  check({{"COLLS_RANK=0", "COLLS_WORLD_SIZE=2", "COLLS_NODE_RANK=2", "COLLS_NNODES=2",
          "COLLS_STORE=file:///nowhere"}});
  for (const bool alone : {false, true}) {
    rank_settings one =
        alone ? rank_settings{{}, by_config(0, 2, next_port())} : by_hand(0, 2, next_port());
    one.cfg.node = one.cfg.nodes = 2;
    check(one);
  }
}

void secret() {
  for (const std::string theirs : {"right", "wrong"}) {
    CAPTURE(theirs);
    const auto check = [&](const std::vector<rank_settings>& ranks) {
      world_of all(ranks, meet);
      if (theirs == "right") {
        CHECK(all.end(0).status == 0);
        CHECK(all.end(1).status == 0);
      } else {
        CHECK(all.end(1).status == 1);
        CHECK(contains(all.log(1), "auth_failed"));
      }
    };
    const int port = next_port();
    check({by_hand(0, 2, port, {"COLLS_SECRET=right", "COLLS_JOIN_TIMEOUT=5s"}),
           by_hand(1, 2, port, {"COLLS_SECRET=" + theirs, "COLLS_JOIN_TIMEOUT=5s"})});
    for (const bool alone : {false, true}) {
      const int other = next_port();
      std::vector<rank_settings> ranks;
      for (int r = 0; r < 2; ++r) {
        ranks.push_back(alone ? rank_settings{{}, by_config(r, 2, other)} : by_hand(r, 2, other));
        ranks.back().cfg.secret = r == 0 ? std::string("right") : theirs;
        ranks.back().cfg.join_timeout = 5s;
      }
      check(ranks);
    }
  }
}

void secret_file() {
  const folder place;
  const std::string path = place.path + "/secret";
  std::ofstream(path) << "right\n";
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  const int port = next_port();
  check_meets({by_hand(0, 2, port, {"COLLS_SECRET_FILE=" + path}),
               by_hand(1, 2, port, {"COLLS_SECRET=right"})});
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  world_of readable({by_hand(0, 2, next_port(), {"COLLS_SECRET_FILE=" + path})}, meet);
  CHECK(readable.end(0).status == 1);
  CHECK(contains(readable.log(0), "chmod 600"));
}

void insecure() {
  const auto ranks_at = [](const std::string& address, bool allowed, bool by_variable) {
    std::vector<rank_settings> ranks;
    const int port = next_port();
    for (int r = 0; r < 2; ++r) {
      ranks.push_back(by_hand(r, 2, port, {"COLLS_JOIN_TIMEOUT=5s"}));
      ranks.back().environment[2] = "MASTER_ADDR=" + address;
      if (allowed && by_variable) ranks.back().environment.push_back("COLLS_INSECURE=1");
      if (allowed && !by_variable) ranks.back().cfg.insecure = true;
    }
    return ranks;
  };
  std::vector<rank_settings> refused = ranks_at("0.0.0.0", false, true);
  refused.pop_back();
  world_of one(refused, meet);
  CHECK(one.end(0).status == 1);
  CHECK(contains(one.log(0), "insecure_bind"));
  for (const bool by_variable : {true, false}) {
    CAPTURE(by_variable);
    check_meets(ranks_at("0.0.0.0", true, by_variable));
  }
  std::vector<rank_settings> alone;
  const int port = next_port();
  for (int r = 0; r < 2; ++r) {
    config cfg = by_config(r, 2, port);
    cfg.address = "tcp://0.0.0.0:" + std::to_string(port);
    cfg.insecure = true;
    alone.push_back({{}, cfg});
  }
  check_meets(alone);
}

/// The number of ring buffers that this process has mapped.
int shared_mappings() { return count(text_of("/proc/self/maps"), "memfd:colls"); }

void transport() {
  for (const std::string by : {"tcp", "hybrid", "shm"}) {
    for (const bool may_share : {true, false}) {
      CAPTURE(by);
      CAPTURE(may_share);
      const value given{"COLLS_TRANSPORT=" + by, [&](config& cfg) { cfg.transport = by; }};
      by_every_way(2, given, [&](const std::vector<rank_settings>& ranks) {
        world_of all(ranks, [=](colls::world& world, const line& test) -> task<> {
          const rlimit least{4096, 4096};
          if (!may_share) ::setrlimit(RLIMIT_FSIZE, &least);
          co_await world.barrier();
          test.say(shared_mappings() > 0 ? "shares" : "does not");
        });
        if (by == "shm" && !may_share) {
          CHECK(all.end(0).status == 1);
          CHECK(all.end(1).status == 1);
          return;
        }
        const std::string wanted = by != "tcp" && may_share ? "shares" : "does not";
        for (const std::size_t r : {0u, 1u}) CHECK(all.hear(r) == wanted);
      });
    }
  }
}

void reads() {
  if (!kernel_lets_read()) {
    MESSAGE("skipped: the kernel lets no process read another one here");
    return;
  }
  for (const std::string when : {"always", "never"}) {
    CAPTURE(when);
    const value given{"COLLS_READS=" + when, [&](config& cfg) { cfg.reads = when; }};
    by_every_way(2, given, [&](const std::vector<rank_settings>& ranks) {
      constexpr std::size_t size = 512 * 1024;
      world_of all(ranks, [=](colls::world& world, const line& test) -> task<> {
        std::vector<unsigned char> mine(size, 7);
        std::vector<unsigned char> of_all(2 * size);
        // Ranks find out at the first calls whether they can read each other's memory.
        const int most = when == "never" ? 5 : 5000;
        std::vector<int> seen(1, 0);
        for (int i = 0; i < most && seen[0] == 0; ++i) {
          co_await world.all_gather(mine, of_all, {.algorithm = colls::algorithm::direct});
          seen[0] = kernel_read >= size ? 1 : 0;
          co_await world.all_reduce(seen, colls::minimum{}, {.algorithm = colls::algorithm::ring});
        }
        test.say(kernel_read == 0 ? "never" : kernel_read >= size ? "always" : "a little");
      });
      for (const std::size_t r : {0u, 1u}) CHECK(all.hear(r) == when);
    });
  }
}

/// Whether this process listens for other ranks at the address.
bool listens_at(const std::string& address) {
  for (int fd = 3; fd < 256; ++fd) {
    int listens = 0;
    socklen_t size = sizeof listens;
    colls::endpoint local;
    auto length = static_cast<socklen_t>(local.capacity());
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
    if (::getsockname(fd, local.data(), &length) != 0 || local.data()->sa_family != AF_INET)
      continue;
    if (local.address().to_string() == address) return true;
  }
  return false;
}

/// tests/bootstrap/network_interfaces.cpp tests which names fit.
void socket_ifname() {
  const auto all = colls::detail::interface_addresses();
  const auto other = std::find_if(all.begin(), all.end(), [](const auto& each) {
    return each.address.is_v4() && !each.address.is_loopback();
  });
  if (other == all.end()) {
    MESSAGE("skipped: this host has no interface besides loopback");
    return;
  }
  const std::string address = other->address.to_string();
  const auto check = [&](const std::string& name, const char* wanted) {
    const value given{"COLLS_SOCKET_IFNAME=" + name,
                      [&](config& cfg) { cfg.socket_ifname = name; }};
    by_every_way(2, given, [&](const std::vector<rank_settings>& ranks) {
      world_of started(ranks, [=](colls::world& world, const line& test) -> task<> {
        co_await world.barrier();
        test.say(listens_at(address) ? "there" : "elsewhere");
      });
      for (const std::size_t r : {0u, 1u}) CHECK(started.hear(r) == wanted);
    });
  };
  check('=' + other->name, "there");
  check("lo", "elsewhere");
  const value wrong{"COLLS_SOCKET_IFNAME=no-such",
                    [](config& cfg) { cfg.socket_ifname = "no-such"; }};
  by_every_way(2, wrong, [](std::vector<rank_settings> ranks) {
    ranks.pop_back();
    world_of started(ranks, meet);
    CHECK(started.end(0).status == 1);
    CHECK(contains(started.log(0), "COLLS_SOCKET_IFNAME=no-such fits no interface that is up"));
  });
}

/// Ranks with checksums do not join ranks without; tests/integration/checksum.cpp flips bits.
void checksum() {
  const value given{"COLLS_CHECKSUM=1", [](config& cfg) { cfg.checksum = true; }};
  by_every_way(2, given, [](std::vector<rank_settings> ranks) {
    check_meets(ranks);
    for (std::string& each : ranks[1].environment) {
      if (each == "COLLS_CHECKSUM=1") each = "COLLS_CHECKSUM=0";
    }
    ranks[1].cfg.checksum = false;
    world_of all(ranks, meet);
    for (const std::size_t r : {0u, 1u}) {
      CHECK(all.end(r).status == 1);
      CAPTURE(all.log(r));
      CHECK(contains(all.log(r), "COLLS_CHECKSUM must be the same"));
    }
  });
}

/// A call of another thread throws with the variable; tests/call/check_threads.cpp tests all calls.
void check_threads() {
  for (const bool is_checked : {false, true}) {
    CAPTURE(is_checked);
    strings more;
    if (is_checked) more.push_back("COLLS_CHECK_THREADS=1");
    const int port = next_port();
    const std::vector<rank_settings> ranks{by_hand(0, 2, port, more), by_hand(1, 2, port, more)};
    world_of all(ranks, [](colls::world& world, const line& test) -> task<> {
      co_await world.barrier();
      std::string answer = "accepted";
      std::thread([&] {
        try {
          const auto refused = world.barrier();
          answer = refused.reason().detail;
        } catch (const colls::error& thrown) {
          answer = std::string("thrown: ") + thrown.record().detail;
        }
      }).join();
      co_await world.barrier();
      test.say(answer);
    });
    for (const std::size_t r : {0u, 1u}) {
      const std::string answer = all.hear(r);
      CHECK(contains(answer, is_checked ? "thrown: thread " : "another thread is inside"));
      CHECK(contains(answer, "the world belongs to thread") == is_checked);
      CHECK(all.end(r).status == 0);
    }
  }
  const int port = next_port();
  world_of wrong({by_hand(0, 1, port, {"COLLS_CHECK_THREADS=maybe"})}, meet);
  CHECK(wrong.end(0).status == 1);
  CHECK(contains(wrong.log(0), "COLLS_CHECK_THREADS=maybe is neither 1 nor 0"));
}

/// A port of a program that is not colls.
struct taken_port {
  colls::listener held;
  taken_port() { REQUIRE(!held.listen({boost::asio::ip::address_v4::loopback(), 0})); }
  int number() const { return held.local().port(); }
};

void port() {
  const taken_port other;
  const std::string port = "COLLS_PORT=" + std::to_string(next_port());
  check_meets({by_hand(0, 2, other.number(), {port}), by_hand(1, 2, other.number(), {port})});
  for (const bool alone : {false, true}) {
    std::vector<rank_settings> ranks;
    const int free = next_port();
    for (int r = 0; r < 2; ++r) {
      ranks.push_back(alone ? rank_settings{{}, by_config(r, 2, other.number())}
                            : by_hand(r, 2, other.number()));
      ranks.back().cfg.ports = {other.number(), free};
    }
    check_meets(ranks);
  }
}

/// Checks that `stranger`, which comes before the second of the ranks and has its number, is kept
/// out, and that the ranks meet.
void check_keeps_out(const std::vector<rank_settings>& ranks, rank_settings stranger) {
  stranger.cfg.join_timeout = 2s;
  world_of first({ranks[0]}, meet);
  world_of other({stranger}, meet);
  CHECK(other.end(0).status == 1);
  world_of second({ranks[1]}, meet);
  CHECK(first.end(0).status == 0);
  CHECK(second.end(0).status == 0);
}

void job_name() {
  const value given{"COLLS_JOB=mine", [](config& cfg) { cfg.job = "mine"; }};
  by_every_way(2, given, [](const std::vector<rank_settings>& ranks) {
    rank_settings of_another_job = ranks[1];
    for (std::string& each : of_another_job.environment) {
      if (each == "COLLS_JOB=mine") each = "COLLS_JOB=another";
    }
    if (of_another_job.cfg.job == "mine") of_another_job.cfg.job = "another";
    check_keeps_out(ranks, of_another_job);
  });
}

void restarts() {
  const value given{"COLLS_RESTART_COUNT=1", [](config& cfg) { cfg.restarts = 1; }};
  by_every_way(2, given, [](const std::vector<rank_settings>& ranks) {
    rank_settings of_an_earlier_start = ranks[1];
    std::erase(of_an_earlier_start.environment, "COLLS_RESTART_COUNT=1");
    of_an_earlier_start.cfg.restarts = 0;
    check_keeps_out(ranks, of_an_earlier_start);
  });
}

void generation() {
  const value given{"", [](config& cfg) { cfg.generation = 2; }};
  by_every_way(2, given, [](const std::vector<rank_settings>& ranks) {
    rank_settings of_an_earlier_generation = ranks[1];
    of_an_earlier_generation.cfg.generation = 1;
    check_keeps_out(ranks, of_an_earlier_generation);
  });
}

/// Only ranks that know a launcher ask it for replacements. None listens here.
void launcher() {
  const auto check = [](const std::vector<rank_settings>& ranks, const char* wanted) {
    world_of all(ranks, [](colls::world& world, const line& test) -> task<> {
      const colls::recovery_options opts{.wait = 1ms, .timeout = 500ms};
      std::string end = "no error";
      try {
        auto repairing = world.repair(opts);
        co_await repairing;
      } catch (const colls::error& thrown) {
        end = thrown.what();
      }
      test.say(end);
    });
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const std::string end = all.hear(r);
      CAPTURE(end);
      CHECK(contains(end, "no_replacement"));
      CHECK(contains(end, wanted));
    }
  };
  for (const bool is_given : {false, true}) {
    const char* const wanted = is_given ? "the launcher does not answer" : "no launcher starts";
    const folder place;
    const std::string nowhere = is_given ? "tcp://127.0.0.1:9" : "";
    std::vector<rank_settings> by_variables;
    std::vector<rank_settings> by_fields;
    const int port = next_port();
    for (int r = 0; r < 2; ++r) {
      by_variables.push_back(
          {{"COLLS_RANK=" + std::to_string(r), "COLLS_WORLD_SIZE=2",
            "COLLS_STORE=file://" + place.path + "/store", "COLLS_LAUNCHER=" + nowhere}});
      by_fields.push_back({{}, by_config(r, 2, port)});
      by_fields.back().cfg.launcher = nowhere;
    }
    check(by_variables, wanted);
    check(by_fields, wanted);
  }
}

/// A replacement asks its launcher for its rank. None listens here.
void replacement() {
  config cfg = by_config(1, 2, next_port());
  cfg.replacement = 1;
  cfg.launcher = "tcp://127.0.0.1:9";
  cfg.join_timeout = 300ms;
  world_of all(
      {{{"COLLS_RANK=1", "COLLS_WORLD_SIZE=2", "COLLS_STORE=tcp://127.0.0.1:7",
         "COLLS_REPLACEMENT=1", "COLLS_LAUNCHER=tcp://127.0.0.1:9", "COLLS_JOIN_TIMEOUT=300ms"}},
       {{}, cfg}},
      meet);
  for (const std::size_t r : {0u, 1u}) {
    CHECK(all.end(r).status == 1);
    CHECK(contains(all.log(r), "did not reach the store at 127.0.0.1:9"));
  }
}

void max_restarts() {
  const value given{"COLLS_MAX_RESTARTS=4", [](config& cfg) { cfg.max_restarts = 4; }};
  by_every_way(2, given, [](std::vector<rank_settings> ranks) {
    for (rank_settings& each : ranks) {
      each.cfg.job = "mine";
      each.cfg.restarts = 2;
    }
    world_of all(ranks, meet);
    for (const std::size_t rank : {0u, 1u}) {
      CHECK(all.end(rank).status == 0);
      CHECK(contains(all.log(rank), "start 3 of 5: job mine/restart 2") == (rank == 0));
    }
  });
}

void log_level() {
  const auto lines = [](const std::string& level) {
    world_of one({{{"COLLS_LOG=" + level, "COLLS_TIMOUT=5"}}}, meet);
    CHECK(one.end(0).status == 0);
    return one.log(0);
  };
  CHECK(lines("off") == "");
  const std::string warned = lines("warn");
  CHECK(contains(warned, "COLLS_TIMOUT"));
  CHECK(!contains(warned, "rank 0 of 1"));
  CHECK(lines("") == warned);
  CHECK(contains(lines("info"), "rank 0 of 1"));
  const int port = next_port();
  for (const std::string level : {"info", "debug"}) {
    world_of all({by_hand(0, 2, port, {"COLLS_LOG=" + level}), by_hand(1, 2, port)}, meet);
    CHECK(all.end(0).status == 0);
    CHECK(contains(all.log(0), "rank 0 listens at") == (level == "debug"));
  }
}

void log_file() {
  const folder place;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  job one({strings{"RANK=0", "WORLD_SIZE=1", "COLLS_LOG=info",
                   "COLLS_LOG_FILE=" + place.path + "/r%r-h%h-p%p-%%"}},
          meet);
  CHECK(one.wait(0).status == 0);
  CHECK(one.log(0) == "");
  const std::string written =
      text_of(place.path + "/r0-h" + host + "-p" + std::to_string(one.pid(0)) + "-%");
  CHECK(contains(written, "rank 0 of 1"));
}

void set_by_colls_run() {
  launcher_test::run it({"-n", "2", "sh", "-c",
                         "echo $COLLS_RANK/$COLLS_WORLD_SIZE "
                         "$COLLS_LOCAL_RANK/$COLLS_LOCAL_WORLD_SIZE "
                         "$COLLS_NODE_RANK/$COLLS_NNODES ${COLLS_STORE%:*} $COLLS_TERMINAL."});
  CHECK(it.wait() == 0);
  for (const char* rank : {"0", "1"}) {
    const std::string here(rank);
    CHECK(contains(it.out(), here + "/2 " + here + "/2 0/1 tcp://127.0.0.1 .\n"));
  }
  launcher_test::run shown({"-n", "1", "sh", "-c", "echo terminal=$COLLS_TERMINAL"},
                           {.terminal = true});
  CHECK(shown.wait() == 0);
  CHECK(contains(shown.out(), "terminal=1\r\n"));
}

void visible_devices() {
  launcher_test::run it(
      {"--nproc-per-node", "gpu", "sh", "-c", "echo $COLLS_RANK/$COLLS_WORLD_SIZE."},
      {.environment = {"CUDA_VISIBLE_DEVICES=3,1,0"}});
  CHECK(it.wait() == 0);
  for (const char* line : {"0/3.\n", "1/3.\n", "2/3.\n"}) CHECK(contains(it.out(), line));
}

std::string congestion_of(int socket) {
  char name[16] = {};
  socklen_t size = sizeof name;
  return ::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &size) == 0 ? name : "";
}

void congestion() {
  std::istringstream known(text_of("/proc/sys/net/ipv4/tcp_allowed_congestion_control"));
  const std::string own = text_of("/proc/sys/net/ipv4/tcp_congestion_control");
  std::string other;
  for (std::string each; known >> each;) {
    if (!own.starts_with(each)) other = each;
  }
  const value refused{"", [](config& cfg) { cfg.congestion = "no-such"; }};
  by_every_way(2, refused, [](std::vector<rank_settings> ranks) {
    ranks.pop_back();
    world_of all(ranks, meet);
    CHECK(all.end(0).status == 1);
    CHECK(contains(all.log(0), "'no-such'"));
  });
  if (other.empty()) {
    MESSAGE("skipped: the system allows one congestion control alone, so no other can be chosen");
    return;
  }
  const value given{"", [&](config& cfg) {
                      cfg.congestion = other;
                      cfg.transport = "tcp";
                    }};
  by_every_way(2, given, [&](const std::vector<rank_settings>& ranks) {
    world_of all(ranks, [=](colls::world& world, const line& test) -> task<> {
      co_await world.barrier();
      int links = 0;
      for (int fd = 3; fd < 256; ++fd) links += congestion_of(fd) == other ? 1 : 0;
      test.say(links > 0 ? other : "none");
    });
    for (const std::size_t r : {0u, 1u}) CHECK(all.hear(r) == other);
  });
}

void source() {
  for (const bool alone : {false, true}) {
    rank_settings one = alone ? rank_settings{{}, by_config(0, 2, 9)} : by_hand(0, 2, 9);
    one.cfg.rank = 5;
    one.cfg.source = "an oracle";
    world_of all({one}, meet);
    CHECK(all.end(0).status == 1);
    CHECK(contains(all.log(0), "an oracle"));
  }
}

/// If a launcher serves the store, rank 0 connects to it and does not open one.
void served() {
  for (const bool alone : {false, true}) {
    rank_settings one =
        alone ? rank_settings{{}, by_config(0, 2, next_port())} : by_hand(0, 2, next_port());
    one.cfg.served = true;
    one.cfg.join_timeout = 700ms;
    world_of all({one}, meet);
    CHECK(all.end(0).status == 1);
    CAPTURE(all.log(0));
    CHECK(contains(all.log(0), "unreachable"));
  }
}

/// If the store's file belongs to the job, its folder is created for it and removed with it.
void own_file() {
  for (const bool own : {true, false}) {
    const folder place;
    config cfg{.size = 2, .address = "file://" + place.path + "/made/store"};
    cfg.own_file = own;
    cfg.join_timeout = 3s;
    std::vector<rank_settings> ranks;
    for (cfg.rank = 0; cfg.rank < 2; ++cfg.rank) ranks.push_back({{}, cfg});
    world_of all(ranks, meet);
    CHECK((all.end(0).status == 0) == own);
    CHECK((all.end(1).status == 0) == own);
    CHECK(!std::filesystem::exists(place.path + "/made"));
  }
}

/// Rank 0 takes over a socket that listens already: no other process can take the port meanwhile.
void store_fd() {
  for (const bool alone : {false, true}) {
    const taken_port held;
    const colls::detail::descriptor shared(::dup(held.held.descriptor()));
    std::vector<rank_settings> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks.push_back(alone ? rank_settings{{}, by_config(r, 2, held.number())}
                            : by_hand(r, 2, held.number()));
      if (r == 0) ranks.back().cfg.store_fd = shared.get();
    }
    check_meets(ranks);
  }
}

// ---- options, on a simulated network, where messages can be counted

struct counts {
  std::uint64_t messages = 0;
  std::uint64_t bytes = 0;
  std::uint32_t rounds = 0;
};
template <class Call>
counts cost_of(int size, const Call& call) {
  colls::simulated_world world(size);
  std::vector<colls::simulated::communicator> all;
  for (int r = 0; r < size; ++r) all.push_back(colls::simulated::join(world, r));
  std::vector<colls::operation<>> calls;
  for (auto& each : all) calls.push_back(call(each));
  for (auto& each : calls) colls::sync_wait(world, each);
  return {world.messages(), world.bytes(), world.rounds()};
}

void pinned_algorithm() {
  std::vector<float> data[8];
  for (auto& each : data) each.assign(800, 1);
  const auto by = [&](colls::algorithm which) {
    return cost_of(8, [&](auto& comm) {
      return comm.all_reduce(data[static_cast<std::size_t>(comm.rank())], {.algorithm = which});
    });
  };
  const counts ring = by(colls::algorithm::ring);
  const counts doubling = by(colls::algorithm::recursive_doubling);
  CHECK(ring.rounds == 14);
  CHECK(doubling.rounds == 3);
  CHECK(doubling.bytes == 8 * 3 * 3200);
}

void segment() {
  std::vector<float> data[4];
  for (auto& each : data) each.assign(64 * 1024, 1);
  const auto with = [&](std::size_t bytes) {
    return cost_of(4, [&](auto& comm) {
      return comm.broadcast(data[static_cast<std::size_t>(comm.rank())], 0,
                            {.algorithm = colls::algorithm::chain, .segment = bytes});
    });
  };
  CHECK(with(256 * 1024).messages == 3);
  CHECK(with(64 * 1024).messages == 12);
}

void radix() {
  std::vector<float> data[16];
  for (auto& each : data) each.assign(4, 1);
  const auto with = [&](int radix) {
    return cost_of(16, [&](auto& comm) {
      return comm.broadcast(data[static_cast<std::size_t>(comm.rank())], 0,
                            {.algorithm = colls::algorithm::knomial_tree, .radix = radix});
    });
  };
  CHECK(with(2).rounds == 4);
  CHECK(with(16).rounds == 1);
}

void order() {
  constexpr int size = 8;
  constexpr std::size_t count = 500;
  std::vector<float> in(count);
  std::vector<float> wanted(count);
  const auto at = [](int rank, std::size_t i) {
    return 1.0f / static_cast<float>(1 + (i * 31 + static_cast<std::size_t>(rank) * 17) % 97);
  };
  for (int r = 0; r < size; ++r) {
    for (std::size_t i = 0; i < count; ++i) wanted[i] = r == 0 ? at(0, i) : wanted[i] + at(r, i);
  }
  const auto sums = [&](const colls::options& opts) {
    std::vector<float> data[size];
    cost_of(size, [&](auto& comm) {
      auto& mine = data[comm.rank()];
      for (std::size_t i = 0; i < count; ++i) mine.push_back(at(comm.rank(), i));
      return comm.all_reduce(mine, opts);
    });
    return data[3];
  };
  CHECK(sums({.order = colls::order::rank}) == wanted);
  CHECK(sums({.algorithm = colls::algorithm::ring}) != wanted);
}

void wire() {
  std::vector<colls::bfloat16> data[4];
  for (auto& each : data) each.assign(1000, colls::bfloat16(1));
  const auto by = [&](colls::wire which) {
    return cost_of(4, [&](auto& comm) {
      return comm.all_reduce(data[static_cast<std::size_t>(comm.rank())],
                             {.algorithm = colls::algorithm::ring, .wire = which});
    });
  };
  const counts wide = by(colls::wire::accumulate);
  const counts narrow = by(colls::wire::storage);
  CHECK(narrow.bytes < wide.bytes);
  CHECK(narrow.messages == wide.messages);
}

// ---- the table

struct row {
  const char* names;  // variables, `config.` fields, `options.` members
  void (*holds)();
  const char* where = nullptr;  // the test of it elsewhere, if there can be none here
};

const row table[] = {
    {"COLLS_TIMEOUT config.timeout", timeout},
    {"options.timeout", timeout_of_a_call},
    {"COLLS_JOIN_TIMEOUT config.join_timeout", join_timeout},
    {"RANK WORLD_SIZE MASTER_ADDR MASTER_PORT COLLS_RANK COLLS_WORLD_SIZE COLLS_STORE config.rank "
     "config.size config.address",
     rank_and_size},
    {"PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS PMIX_NAMESPACE", launchers},
    {"LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE TORCHELASTIC_RUN_ID "
     "TORCHELASTIC_USE_AGENT_STORE TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS "
     "JOB_COMPLETION_INDEX PMIX_RANK",
     nullptr, "tests/bootstrap/launcher_environment.cpp"},
    {"PMI_FD", nullptr, "tests/cluster/launchers.cpp"},
    {"CUDA_VISIBLE_DEVICES", visible_devices},
    {"COLLS_LOCAL_WORLD_SIZE COLLS_NNODES config.local_size config.nodes", one_host},
    {"COLLS_LOCAL_RANK config.local_rank", local_rank},
    {"COLLS_NODE_RANK config.node", node},
    {"COLLS_SECRET config.secret", secret},
    {"COLLS_SECRET_FILE", secret_file},
    {"COLLS_INSECURE config.insecure", insecure},
    {"COLLS_TRANSPORT config.transport", transport},
    {"COLLS_READS config.reads", reads},
    {"COLLS_SOCKET_IFNAME config.socket_ifname", socket_ifname},
    {"COLLS_CHECKSUM config.checksum", checksum},
    {"COLLS_CHECK_THREADS", check_threads},
    {"COLLS_PORT config.ports", port},
    {"COLLS_JOB config.job", job_name},
    {"COLLS_RESTART_COUNT config.restarts", restarts},
    {"COLLS_MAX_RESTARTS config.max_restarts", max_restarts},
    {"config.generation", generation},
    {"COLLS_LAUNCHER config.launcher", launcher},
    {"COLLS_REPLACEMENT config.replacement", replacement},
    {"COLLS_LOG", log_level},
    {"COLLS_LOG_FILE", log_file},
    {"COLLS_TERMINAL", set_by_colls_run},
    {"config.congestion", congestion},
    {"config.source", source},
    {"config.served", served},
    {"config.own_file", own_file},
    {"config.store_fd", store_fd},
    {"options.algorithm", pinned_algorithm},
    {"options.segment", segment},
    {"options.radix", radix},
    {"options.order", order},
    {"options.wire", wire},
    {"options.stream", nullptr, "tests/cuda/calls.hpp"},
    {"COLLS_MNIST", nullptr, "tests/torch/train_mnist.py"},
    {"COLLS_SIM_SEEDS COLLS_SIM_SEED COLLS_SIM_SCENARIO", nullptr, "tests/sim/schedules.cpp"},
};

/// Returns the words of `text` that match the expression.
std::set<std::string> found_in(const std::string& text, const std::string& expression,
                               const std::string& prefix = "") {
  std::set<std::string> all;
  const std::regex wanted(expression);
  for (std::sregex_iterator at(text.begin(), text.end(), wanted), end; at != end; ++at) {
    all.insert(prefix + at->str(1));
  }
  return all;
}
std::string between(const std::string& text, const std::string& from, const std::string& to) {
  const auto begin = text.find(from);
  REQUIRE(begin != text.npos);
  return text.substr(begin, text.find(to, begin) - begin);
}

/// Returns all settings that are documented in docs/environment.md and in those headers.
std::set<std::string> documented(const std::string& page, const std::string& config_header,
                                 const std::string& options_header) {
  const std::string rows = between(page, "| variable | meaning |", "\n\n");
  std::set<std::string> all = found_in(rows, "`([A-Z_]+)[`=]");
  const std::string member = R"(\n  [\w:]+(?:<\d+>)? (\w+)(?: = [^;]*|\{[^;]*)?;)";
  all.merge(found_in(between(config_header, "struct config {", "static config single"), member,
                     "config."));
  all.merge(found_in(between(options_header, "struct options {", "\n};"), member, "options."));
  return all;
}

}  // namespace

TEST_CASE("every variable, field and option has its effect, by every way to set it") {
  for (const row& each : table) {
    CAPTURE(std::string(each.names));
    if (each.holds != nullptr) each.holds();
  }
}

TEST_CASE("the table has every variable of the page, every field of config and every option") {
  const auto root = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  const std::string page = text_of(root / "docs/environment.md");
  const std::string fields = text_of(root / "include/colls/bootstrap/config.hpp");
  const std::string members = text_of(root / "include/colls/base/options.hpp");
  std::set<std::string> listed;
  for (const row& each : table) {
    std::istringstream names(each.names);
    for (std::string name; names >> name;) {
      listed.insert(name);
      if (each.where == nullptr) continue;
      // That test has to contain the name.
      const auto word = name.starts_with("options.") ? name.substr(7) + " = " : name;
      CHECK(contains(text_of(root / each.where), word));
    }
  }
  const auto missing = [&](const std::set<std::string>& wanted) {
    std::string lacks;
    for (const std::string& each : wanted) lacks += listed.contains(each) ? "" : each + " ";
    return lacks;
  };
  const std::set<std::string> all = documented(page, fields, members);
  CHECK(all.size() > 45);
  CHECK(missing(all) == "");
  for (const char* known : colls::detail::known_variables) {
    CAPTURE(known);
    CHECK(all.contains(known));
  }
  // One more setting at any of the three places is reported as missing.
  const auto with = [](std::string text, const std::string& after, const std::string& more) {
    const auto at = text.find(after);
    REQUIRE(at != text.npos);
    return text.insert(at + after.size(), more);
  };
  const auto variable =
      with(page, "| variable | meaning |\n|---|---|\n", "| `COLLS_NEW=1` | new |\n");
  const auto field = with(fields, "struct config {\n", "  fixed_string<8> fresh = {};\n");
  const auto member = with(members, "struct options {\n", "  int fresh = 0;\n");
  CHECK(missing(documented(variable, fields, members)) == "COLLS_NEW ");
  CHECK(missing(documented(page, field, members)) == "config.fresh ");
  CHECK(missing(documented(page, fields, member)) == "options.fresh ");
}
