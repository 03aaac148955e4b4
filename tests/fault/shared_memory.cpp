// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Ranks of one host share memory, where they may; nothing of it is left when they are killed.

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <set>
#include <thread>

#include "launcher.hpp"
#include "processes.hpp"
#include "../support/reads.hpp"

using namespace processes;

namespace {

/// How many pieces of shared memory a process has mapped.
int shared_by(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  int found = 0;
  for (std::string each; std::getline(maps, each);) found += contains(each, "memfd:colls");
  return found;
}

/// Whatever names colls in folders that outlive a process.
std::set<std::string> left_behind() {
  std::set<std::string> found;
  for (const std::filesystem::path& folder :
       {std::filesystem::path("/dev/shm"), std::filesystem::temp_directory_path()}) {
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator(folder, missing)) {
      if (contains(entry.path().filename(), "colls")) found.insert(entry.path());
    }
  }
  return found;
}

bool has_local_socket(const std::string& port) {
  std::ifstream sockets("/proc/net/unix");
  for (std::string each; std::getline(sockets, each);) {
    if (each.ends_with("@colls 127.0.0.1 " + port)) return true;
  }
  return false;
}

/// A filter of this thread's system calls, as a container's policy may have it.
template <std::size_t Size>
void obey(sock_filter (&rules)[Size]) {
  const sock_fprog program{Size, rules};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

void forbid(int call, int error) {
  looks_for_leaks = false;
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  obey(rules);
}
void forbid_shared_memory() { forbid(SYS_memfd_create, EPERM); }
void forbid_pages() { forbid(SYS_fallocate, ENOSPC); }
void forbid_local_sockets() {
  looks_for_leaks = false;
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  obey(rules);
}

/// No other process may look into this one, or this one into others that forbid it.
void forbid_reading(bool here) {
  looks_for_leaks = false;
  if (here) {
    ::prctl(PR_SET_DUMPABLE, 0);
    return;
  }
  // Who may trace everything may read everything.
  struct {
    std::uint32_t effective, permitted, inheritable;
  } rights[2] = {};
  const struct {
    std::uint32_t version;
    int process;
  } mine{_LINUX_CAPABILITY_VERSION_3, 0};
  if (::syscall(SYS_capget, &mine, rights) != 0) return;
  rights[0].effective &= ~(1U << CAP_SYS_PTRACE);
  ::syscall(SYS_capset, &mine, rights);
}

/// Nor may it have what others pass to it.
void forbid_shared_mappings() {
  looks_for_leaks = false;
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[3])),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  obey(rules);
}

/// One more descriptor, for a connection, and none for what comes over it.
void forbid_descriptors() {
  looks_for_leaks = false;
  rlimit most{};
  ::getrlimit(RLIMIT_NOFILE, &most);
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  most.rlim_cur = static_cast<rlim_t>(next) + 1;
  ::setrlimit(RLIMIT_NOFILE, &most);
}

/// None, whichever of those that there are is closed afterwards.
void forbid_all_descriptors() {
  looks_for_leaks = false;
  rlimit most{};
  ::getrlimit(RLIMIT_NOFILE, &most);
  most.rlim_cur = STDERR_FILENO + 1;
  ::setrlimit(RLIMIT_NOFILE, &most);
}

/// As `ulimit -f` may have it.
void forbid_long_files() {
  looks_for_leaks = false;
  rlimit longest{};
  ::getrlimit(RLIMIT_FSIZE, &longest);
  longest.rlim_cur = 1 << 16;
  ::setrlimit(RLIMIT_FSIZE, &longest);
}

/// A /dev/shm of this process's own without room for a byte more.
bool fill_dev_shm() {
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4096") != 0) {
    return false;
  }
  std::ofstream rest("/dev/shm/rest");
  while (rest.put('x').flush()) {
  }
  return true;
}

enum class intruder { let_in, sent_away, sees_memory, lost };

task<> dial_as_rank_1(colls::stream& link, intruder* found) {
  colls::hello mine;
  mine.job = colls::detail::hash_of("");
  mine.rank = 1;
  mine.world = 2;
  const colls::secret known("known to all");
  *found = intruder::sent_away;
  (void)co_await colls::prove(link, mine, known);
  (void)co_await colls::await_verdict(link, mine);
  *found = intruder::let_in;
}

/// What a process of that user, who knows whatever ranks know, gets of rank 0: a link, or sight of
/// its memory.
intruder intrude(uid_t user, pid_t rank, int port) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    auto found = intruder::lost;
    try {
      if (::setresuid(user, user, user) != 0) ::_exit(static_cast<int>(found));
      boost::asio::io_context io(1);
      const auto on = colls::engine::of(io.get_executor());
      colls::detail::descriptor socket;
      const colls::endpoint door(boost::asio::ip::make_address("127.0.0.1"),
                                 static_cast<std::uint16_t>(port));
      if (!colls::shm::connect_beside(door, socket)) {
        colls::stream link(*on, std::move(socket));
        link.deadline(on->now() + 10 * colls::seconds);
        colls::sync_wait(*on, dial_as_rank_1(link, &found));
      }
    } catch (const colls::error&) {
    }
    const std::string files = "/proc/" + std::to_string(rank) + "/fd";
    if (found == intruder::sent_away && ::access(files.c_str(), R_OK) == 0) {
      found = intruder::sees_memory;
    }
    ::_exit(static_cast<int>(found));
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  return WIFEXITED(status) ? static_cast<intruder>(WEXITSTATUS(status)) : intruder::lost;
}

task<> sum(colls::world& world, const line& test) {
  std::vector<int> data(100'000, world.rank());
  co_await world.all_reduce(data);
  const int ranks = world.size();
  test.say(data.back() == ranks * (ranks - 1) / 2 ? "right" : "wrong");
  test.hear();
}

}  // namespace

TEST_CASE("nothing is left in any folder, and no name, after kill -9") {
  const std::set<std::string> before = left_behind();
  job all(3, [](colls::world& world, const line& test) -> task<> {
    test.say(std::to_string(world.net().members().link_listener.local().port()));
    auto lent = world.allocate<int>(100'000);
    co_await world.all_reduce(lent);
    co_await sum(world, test);
  });
  strings ports;
  for (int rank = 0; rank < 3; ++rank) ports.push_back(all.hear(rank));
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(shared_by(all.pid(rank)) > 0);
    CHECK(has_local_socket(ports[static_cast<std::size_t>(rank)]));
  }
  CHECK(left_behind() == before);
  for (int rank = 0; rank < 3; ++rank) all.kill(rank);
  for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 128 + SIGKILL);
  CHECK(left_behind() == before);
  for (const std::string& port : ports) CHECK(!has_local_socket(port));
}

TEST_CASE("without permission to share memory ranks go by sockets, and say why once") {
  const struct {
    void (*forbid)();
    const char* reason;
  } all_ways[] = {{forbid_shared_memory, "not by shared memory: Operation not permitted"},
                  {forbid_long_files, "not by shared memory: File too large"}};
  for (const auto& way : all_ways) {
    CAPTURE(way.reason);
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      way.forbid();
      co_await sum(world, test);
    });
    REQUIRE(all.all_say("right"));
    int told = 0;
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(shared_by(all.pid(rank)) == 0);
      const int here = count(all.log(rank), way.reason);
      CHECK(here <= 1);
      told += here;
      all.tell(rank);
    }
    CHECK(told > 0);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("a rank that cannot have the memory it is passed goes by a socket, and says why once") {
  const struct {
    void (*forbid)();
    const char* reason;
  } all_ways[] = {{forbid_shared_mappings, "not by shared memory: Cannot allocate memory"},
                  {forbid_descriptors, "not by shared memory: Too many open files"}};
  for (const auto& way : all_ways) {
    CAPTURE(way.reason);
    for (const bool only : {false, true}) {
      CAPTURE(only);
      const auto main = [=](colls::world& world, const line& test) -> task<> {
        std::vector<int> word(1);
        if (world.rank() == 1) {
          way.forbid();
          test.say("ready");
          (void)co_await world.recv(word, 0);
        } else {
          test.hear();
          co_await world.send(word, 1);  // dials
        }
        co_await sum(world, test);
      };
      job all(2, main, {.transport = only ? "shm" : ""});
      REQUIRE(all.hear(1) == "ready");
      all.tell(0);
      if (only) {
        CHECK(all.wait(0).code == colls::errc::peer_failed);
        CHECK(contains(all.wait(0).what, "cannot share memory"));
        CHECK(all.wait(1).status > 0);
        continue;
      }
      REQUIRE(all.all_say("right"));
      CHECK(count(all.log(0), "shared memory") == 0);
      CHECK(count(all.log(1), way.reason) == 1);
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(shared_by(all.pid(rank)) == 0);
        all.tell(rank);
      }
      for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
    }
  }
}

TEST_CASE("a rank that can lend no memory, or see none that is lent, says why once") {
  const struct {
    void (*forbid)();
    bool lends_some;  // before that
    const char* reason;
  } all_ways[] = {
      {forbid_shared_memory, false, "no memory for its peers to work in: Operation not permitted"},
      {forbid_pages, true, "memory that its peers cannot work in: No space left on device"},
      {forbid_shared_mappings, false, "cannot see the memory that rank "},
      {forbid_all_descriptors, false, "cannot see the memory that rank "}};
  for (const auto& way : all_ways) {
    CAPTURE(way.reason);
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      co_await world.barrier();  // opens links
      colls::shared_buffer<int> first;
      if (way.lends_some) first = world.allocate<int>(10);
      if (world.rank() == 1) way.forbid();
      co_await world.barrier();  // or it has seen before what the others lend
      auto mine = world.allocate<int>(100'000);
      auto other = world.allocate<int>(100'000);
      co_await world.all_reduce(mine);
      co_await world.all_reduce(other);
      colls::engine& on = world.net().driver();
      // Where cores are busy time alone is no look at what has come.
      for (int looks = 0; looks < 10; ++looks) {
        co_await on.sleep_until(on.now() + 20 * colls::milliseconds);
      }
      co_await sum(world, test);
    });
    REQUIRE(all.all_say("right"));
    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(all.log(rank));
      CHECK(count(all.log(rank), way.reason) == (rank == 1 ? 1 : 0));
      all.tell(rank);
    }
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("without a local socket and without a secret there is no world, and rank 0 says why") {
  std::thread([] {
    forbid_local_sockets();
    job all(2, sum, {.join_timeout = std::chrono::seconds(2)});
    CHECK(all.wait(0).status == 1);
    CHECK(contains(all.log(0), "the local socket beside it, which ranks without a secret need"));
    CHECK(all.wait(1).status == 1);
  }).join();
}

TEST_CASE("ranks that may have no local socket go by tcp, and say why once") {
  // What a thread may not do its children may not.
  std::thread([] {
    forbid_local_sockets();
    job all(3, sum, {.secret = "given"});
    CHECK(all.all_say("right"));
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(shared_by(all.pid(rank)) == 0);
      CHECK(count(all.log(rank), "no shared memory: Permission denied") == 1);
      CHECK(count(all.log(rank), "shared memory") == 1);
      all.tell(rank);
    }
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
  }).join();
}

TEST_CASE("ranks that have to share a core do not spin, however many the host has") {
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  const int ranks = std::min(CPU_COUNT(&before), 2);
  for (const bool bound : {false, true}) {
    CAPTURE(bound);
    cpu_set_t mine = before;
    for (int core = 0, left = bound ? 1 : CPU_SETSIZE; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &mine) && left-- <= 0) CPU_CLR(core, &mine);
    }
    ::sched_setaffinity(0, sizeof mine, &mine);
    job all(2, [](colls::world& world, const line& test) -> task<> {
      test.say(world.net().driver().spins() ? "spins" : "sleeps");
      co_await world.barrier();
    });
    ::sched_setaffinity(0, sizeof before, &before);
    CHECK(all.all_say(ranks == 2 && !bound ? "spins" : "sleeps"));
    for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("a rank that may not read the memory of another one is sent what lies there") {
  const bool ever = kernel_lets_read();
  if (!ever) MESSAGE("skipped in part: this system lets no process read another one");
  for (const bool may : {true, false}) {
    CAPTURE(may);
    const auto main = [=](colls::world& world, const line& test) -> task<> {
      if (!may) forbid_reading(world.rank() == 0);
      constexpr std::ptrdiff_t n = 100'000;
      const int peer = 1 - world.rank();
      const std::vector<int> mine(n, world.rank());
      const colls::const_bytes memory(reinterpret_cast<const std::byte*>(mine.data()), sizeof(int));
      std::vector<int> all(2 * n);
      bool right = true;
      bool is_read = false;
      // The peer has to map this rank's arena first.
      std::vector<int> known(1, ever ? 0 : 1);
      for (int times = 0; times < 50 || (known[0] == 0 && times < 100'000); ++times) {
        std::fill(all.begin(), all.end(), -1);
        co_await world.all_gather(mine, all);
        right &= std::count(all.begin(), all.begin() + n, 0) == n;
        right &= std::count(all.begin() + n, all.end(), 1) == n;
        colls::tcp_transport::loan loan(world.net(), of_nothing());
        is_read = loan.address_for(peer, memory, colls::readers::all) != 0;
        const bool never = !ever || !may;
        known[0] = is_read || never ? 1 : 0;
        co_await world.all_reduce(known, colls::minimum{});
      }
      test.say(right ? "right" : "wrong");
      test.say(is_read ? "is read" : "sends");
      test.hear();
    };
    job all(2, main, {.reads = "always"});
    REQUIRE(all.all_say("right"));
    CHECK(all.hear(0) == (ever && may ? "is read" : "sends"));
    CHECK(all.hear(1) == (ever && may ? "is read" : "sends"));
    for (int rank = 0; rank < 2; ++rank) all.tell(rank);
    for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("a /dev/shm without room is no matter: shared memory has no name") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: a /dev/shm of its own needs root");
    return;
  }
  job all(2, [](colls::world& world, const line& test) -> task<> {
    const bool full = fill_dev_shm();
    test.say(full ? "full" : "skipped");
    if (full) co_await sum(world, test);
  });
  const std::string first = all.hear(0);
  if (first == "skipped") {
    MESSAGE("skipped: no mount here");
    return;
  }
  REQUIRE((first == "full" && all.hear(1) == "full"));
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(shared_by(all.pid(rank)) > 0);
    CHECK(!contains(all.log(rank), "shared memory"));
    all.tell(rank);
  }
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
}

TEST_CASE("COLLS_TRANSPORT says which: tcp shares nothing") {
  job all(2, sum, {.transport = "tcp"});
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(shared_by(all.pid(rank)) == 0);
    all.tell(rank);
  }
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
}

TEST_CASE("a rank that has become another user shares no memory with the others") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: another user needs root");
    return;
  }
  for (const int stranger : {0, 1, 2}) {
    CAPTURE(stranger);
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      if (world.rank() == stranger && ::setresuid(65534, 65534, 65534) != 0) co_return;
      // Nobody dials whoever is about to become another user.
      test.say("is who it is");
      test.hear();
      co_await sum(world, test);
    });
    REQUIRE(all.all_say("is who it is"));
    for (int rank = 0; rank < 3; ++rank) all.tell(rank);
    REQUIRE(all.all_say("right"));
    int told = 0;
    for (int rank = 0; rank < 3; ++rank) {
      CHECK((shared_by(all.pid(rank)) == 0) == (rank == stranger));
      const int here = count(all.log(rank), "by tcp, not by shared memory: ");
      CHECK(here <= 1);
      told += here;
      all.tell(rank);
    }
    CHECK(told > 0);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("another user of this host, who knows all that ranks know, gets no memory of theirs") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: another user needs root");
    return;
  }
  job all(2,
          [](colls::world& world, const line& test) -> task<> {
            test.say(std::to_string(world.net().members().link_listener.local().port()));
            colls::engine& on = world.net().driver();
            while (!test.told()) co_await on.sleep_until(on.now() + colls::milliseconds);
            co_await sum(world, test);
          },
          {.secret = "known to all"});
  const int port = std::stoi(all.hear(0));
  (void)all.hear(1);
  CHECK(intrude(65534, all.pid(0), port) == intruder::sent_away);
  CHECK(intrude(0, all.pid(0), port) == intruder::let_in);  // who may do so is of the same user
  for (int rank = 0; rank < 2; ++rank) all.tell(rank);
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(shared_by(all.pid(rank)) > 0);
    all.tell(rank);
  }
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
}
