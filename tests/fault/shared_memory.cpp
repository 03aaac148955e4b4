// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Ranks of one host share memory where the system permits it. Nothing of it is left when they are
// killed.

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

/// The number of shared memory files that a process has mapped.
int shared_mappings_of(pid_t pid) {
  std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
  int found = 0;
  for (std::string each; std::getline(maps, each);) found += contains(each, "memfd:colls");
  return found;
}

/// The files whose names contain colls, in folders that outlive a process.
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

/// Installs a filter of this thread's system calls, as the policy of a container may do.
template <std::size_t Size>
void install_filter(sock_filter (&rules)[Size]) {
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
  install_filter(rules);
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
  install_filter(rules);
}

/// Forbids other processes to read this one (`here`), or this one to read processes that forbid it.
void forbid_reading(bool here) {
  looks_for_leaks = false;
  if (here) {
    ::prctl(PR_SET_DUMPABLE, 0);
    return;
  }
  // A process that may trace every process may read every process.
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

/// This process may not map memory that others pass to it.
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
  install_filter(rules);
}

/// Leaves one descriptor, for a connection, and none for a descriptor that is passed over it.
void forbid_descriptors() {
  looks_for_leaks = false;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const int next = ::dup(STDERR_FILENO);
  ::close(next);
  limit.rlim_cur = static_cast<rlim_t>(next) + 1;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Leaves no descriptor, even after existing ones are closed.
void forbid_all_descriptors() {
  looks_for_leaks = false;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = STDERR_FILENO + 1;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Limits the size of files, as `ulimit -f` does.
void forbid_long_files() {
  looks_for_leaks = false;
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = 1 << 16;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}

/// Mounts a private /dev/shm and fills it to the last byte.
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

enum class access_result { accepted, refused, sees_memory, failed };

task<> dial_as_rank_1(colls::stream& connection, access_result* found) {
  colls::hello mine;
  mine.job = colls::detail::hash_of("");
  mine.rank = 1;
  mine.world = 2;
  const colls::secret known("known to all");
  *found = access_result::refused;
  (void)co_await colls::prove(connection, mine, known);
  (void)co_await colls::await_verdict(connection, mine);
  *found = access_result::accepted;
}

/// What a process of `user` that knows the secret gets of rank 0: a connection, or access to its
/// memory.
access_result intrude(uid_t user, pid_t rank, int port) {
  const pid_t pid = ::fork();
  REQUIRE(pid >= 0);
  if (pid == 0) {
    auto found = access_result::failed;
    try {
      if (::setresuid(user, user, user) != 0) ::_exit(static_cast<int>(found));
      boost::asio::io_context io(1);
      const auto driver = colls::engine::get(io.get_executor());
      colls::detail::descriptor socket;
      const colls::endpoint address(boost::asio::ip::make_address("127.0.0.1"),
                                    static_cast<std::uint16_t>(port));
      if (!colls::shm::connect_local(address, socket)) {
        colls::stream connection(*driver, std::move(socket));
        connection.set_deadline(driver->now() + 10 * colls::seconds);
        colls::sync_wait(*driver, dial_as_rank_1(connection, &found));
      }
    } catch (const colls::error&) {
    }
    const std::string files = "/proc/" + std::to_string(rank) + "/fd";
    if (found == access_result::refused && ::access(files.c_str(), R_OK) == 0) {
      found = access_result::sees_memory;
    }
    ::_exit(static_cast<int>(found));
  }
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  if (!WIFEXITED(status)) return access_result::failed;
  return static_cast<access_result>(WEXITSTATUS(status));
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
    test.say(std::to_string(world.net().info().peer_listener.local().port()));
    auto shared = world.allocate<int>(100'000);
    co_await world.all_reduce(shared);
    co_await sum(world, test);
  });
  strings ports;
  for (int rank = 0; rank < 3; ++rank) ports.push_back(all.hear(rank));
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(shared_mappings_of(all.pid(rank)) > 0);
    CHECK(has_local_socket(ports[static_cast<std::size_t>(rank)]));
  }
  CHECK(left_behind() == before);
  for (int rank = 0; rank < 3; ++rank) all.kill(rank);
  for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 128 + SIGKILL);
  CHECK(left_behind() == before);
  for (const std::string& port : ports) CHECK(!has_local_socket(port));
}

TEST_CASE("without permission to share memory ranks use sockets, and log the reason once") {
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
    int logged = 0;
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(shared_mappings_of(all.pid(rank)) == 0);
      const int here = count(all.log(rank), way.reason);
      CHECK(here <= 1);
      logged += here;
      all.tell(rank);
    }
    CHECK(logged > 0);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("a rank that cannot map the memory of a peer uses a socket, and logs the reason once") {
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
          co_await world.send(word, 1);  // connects
        }
        co_await sum(world, test);
      };
      job all(2, main, {.transport = only ? "shm" : ""});
      REQUIRE(all.hear(1) == "ready");
      all.tell(0);
      if (only) {
        CHECK(all.wait(0).code == colls::errc::peer_failed);
        CHECK(contains(all.wait(0).message, "cannot share memory"));
        CHECK(all.wait(1).status > 0);
        continue;
      }
      REQUIRE(all.all_say("right"));
      CHECK(count(all.log(0), "shared memory") == 0);
      CHECK(count(all.log(1), way.reason) == 1);
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(shared_mappings_of(all.pid(rank)) == 0);
        all.tell(rank);
      }
      for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
    }
  }
}

TEST_CASE("a rank that cannot expose memory, or map that of its peers, logs the reason once") {
  const struct {
    void (*forbid)();
    bool exposes_some;  // before that
    const char* reason;
  } all_ways[] = {
      {forbid_shared_memory, false, "no memory for its peers to work in: Operation not permitted"},
      {forbid_pages, true, "memory that its peers cannot work in: No space left on device"},
      {forbid_shared_mappings, false, "cannot map the memory that rank "},
      {forbid_all_descriptors, false, "cannot map the memory that rank "}};
  for (const auto& way : all_ways) {
    CAPTURE(way.reason);
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      co_await world.barrier();  // opens connections
      colls::shared_buffer<int> first;
      if (way.exposes_some) first = world.allocate<int>(10);
      if (world.rank() == 1) way.forbid();
      co_await world.barrier();  // before, no rank has mapped what its peers expose next
      auto mine = world.allocate<int>(100'000);
      auto other = world.allocate<int>(100'000);
      co_await world.all_reduce(mine);
      co_await world.all_reduce(other);
      colls::engine& driver = world.net().driver();
      // Where cores are busy a rank may not poll its messages in a given time.
      for (int polls = 0; polls < 10; ++polls) {
        co_await driver.sleep_until(driver.now() + 20 * colls::milliseconds);
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

TEST_CASE("ranks that may not open local sockets use tcp, and log the reason once") {
  // Children inherit the filter of the thread that forks them.
  std::thread([] {
    forbid_local_sockets();
    job all(3, sum, {.secret = "given"});
    CHECK(all.all_say("right"));
    for (int rank = 0; rank < 3; ++rank) {
      CHECK(shared_mappings_of(all.pid(rank)) == 0);
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

TEST_CASE("a rank that may not read the memory of a peer receives the data in messages") {
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
      // The peer has to map this rank's shared heap first.
      std::vector<int> known(1, ever ? 0 : 1);
      for (int times = 0; times < 50 || (known[0] == 0 && times < 100'000); ++times) {
        std::fill(all.begin(), all.end(), -1);
        co_await world.all_gather(mine, all);
        right &= std::count(all.begin(), all.begin() + n, 0) == n;
        right &= std::count(all.begin() + n, all.end(), 1) == n;
        colls::interprocess_transport::exposure exposure(world.net(), unrelated_communicator());
        is_read = exposure.address_for(peer, memory, colls::readers::all) != 0;
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

TEST_CASE("a full /dev/shm does no harm: shared memory has no name") {
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
    CHECK(shared_mappings_of(all.pid(rank)) > 0);
    CHECK(!contains(all.log(rank), "shared memory"));
    all.tell(rank);
  }
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
}

TEST_CASE("ranks of the transport tcp share no memory") {
  job all(2, sum, {.transport = "tcp"});
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(shared_mappings_of(all.pid(rank)) == 0);
    all.tell(rank);
  }
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
}

TEST_CASE("a rank that has become another user shares no memory with the others") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: another user needs root");
    return;
  }
  for (const int other_user : {0, 1, 2}) {
    CAPTURE(other_user);
    job all(3, [=](colls::world& world, const line& test) -> task<> {
      if (world.rank() == other_user && ::setresuid(65534, 65534, 65534) != 0) co_return;
      // No rank connects to a rank that is about to become another user.
      test.say("is who it is");
      test.hear();
      co_await sum(world, test);
    });
    REQUIRE(all.all_say("is who it is"));
    for (int rank = 0; rank < 3; ++rank) all.tell(rank);
    REQUIRE(all.all_say("right"));
    int logged = 0;
    for (int rank = 0; rank < 3; ++rank) {
      CHECK((shared_mappings_of(all.pid(rank)) == 0) == (rank == other_user));
      const int here = count(all.log(rank), "by tcp, not by shared memory: ");
      CHECK(here <= 1);
      logged += here;
      all.tell(rank);
    }
    CHECK(logged > 0);
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
  }
}

TEST_CASE("a process of another user that knows the secret gets no memory of the ranks") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: another user needs root");
    return;
  }
  job all(2,
          [](colls::world& world, const line& test) -> task<> {
            test.say(std::to_string(world.net().info().peer_listener.local().port()));
            colls::engine& driver = world.net().driver();
            while (!test.told()) co_await driver.sleep_until(driver.now() + colls::milliseconds);
            co_await sum(world, test);
          },
          {.secret = "known to all"});
  const int port = std::stoi(all.hear(0));
  (void)all.hear(1);
  CHECK(intrude(65534, all.pid(0), port) == access_result::refused);
  CHECK(intrude(0, all.pid(0), port) == access_result::accepted);  // the ranks run as this user
  for (int rank = 0; rank < 2; ++rank) all.tell(rank);
  REQUIRE(all.all_say("right"));
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(shared_mappings_of(all.pid(rank)) > 0);
    all.tell(rank);
  }
  for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
}
