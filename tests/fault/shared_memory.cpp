// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Ranks of one host share memory, where they may; nothing of it is left when they are killed.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <set>

#include "launcher.hpp"
#include "processes.hpp"

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

/// As a container's policy may have it.
void forbid_shared_memory() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(rules), rules};
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

task<> sum(colls::world& world, const line& test) {
  std::vector<int> data(100'000, world.rank());
  co_await world.all_reduce(data);
  const int ranks = world.size();
  test.say(data.back() == ranks * (ranks - 1) / 2 ? "right" : "wrong");
  test.hear();
}

int lines_with(const std::string& text, const std::string& words) {
  int found = 0;
  for (std::size_t at = text.find(words); at != text.npos; at = text.find(words, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("nothing is left in any folder, and no name, after kill -9") {
  const std::set<std::string> before = left_behind();
  job all(3, [](colls::world& world, const line& test) -> task<> {
    test.say(std::to_string(world.net().members().link_listener.local().port()));
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
  job all(3, [](colls::world& world, const line& test) -> task<> {
    forbid_shared_memory();
    co_await sum(world, test);
  });
  REQUIRE(all.all_say("right"));
  int told = 0;
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(shared_by(all.pid(rank)) == 0);
    const int here = lines_with(all.log(rank), "not by shared memory: Operation not permitted");
    CHECK(here <= 1);
    told += here;
    all.tell(rank);
  }
  CHECK(told > 0);
  for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank).status == 0);
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
  for (const int stranger : {0, 1}) {
    CAPTURE(stranger);
    job all(2, [=](colls::world& world, const line& test) -> task<> {
      if (world.rank() == stranger && ::setresuid(65534, 65534, 65534) != 0) co_return;
      co_await sum(world, test);
    });
    REQUIRE(all.all_say("right"));
    for (int rank = 0; rank < 2; ++rank) {
      CHECK(shared_by(all.pid(rank)) == 0);
      all.tell(rank);
    }
    for (int rank = 0; rank < 2; ++rank) CHECK(all.wait(rank).status == 0);
  }
}
