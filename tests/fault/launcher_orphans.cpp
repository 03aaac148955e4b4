// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// 3 s after any process of a job was killed, no process of the job is left.

#include "launcher.hpp"

using namespace launcher_test;

namespace {

// Returns the children of a process.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0) continue;
    std::ifstream file(entry.path() / "stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto close = text.rfind(')');
    if (close != text.npos && std::atoi(text.c_str() + close + 4) == parent) {
      found.push_back(pid);
    }
  }
  return found;
}

// Process trees of a rank: the program itself, a shell that started it, a tree, and processes that
// leave the session or ignore signals.
const std::string shapes[] = {
    "echo up; exec sleep 1000",
    "echo up; sleep 1000; true",
    "(sleep 1000; true) & (sh -c 'sleep 1000; true' & sleep 1000; true) & echo up; wait",
    "setsid sleep 1000 & echo up; wait",
    "(setsid sh -c 'setsid sleep 1000 & sleep 1000; true' &) ; echo up; sleep 1000; true",
    "trap '' TERM INT HUP QUIT; sh -c \"trap '' TERM INT HUP; sleep 1000; true\" & echo up; wait",
    "echo up; exec >&- 2>&- <&-; sleep 1000; true",
};

}  // namespace

TEST_CASE("kill -9 of the launcher") {
  for (const std::string& shape : shapes) {
    CAPTURE(shape);
    run it(shell(3, shape));
    REQUIRE(it.shows("up", 3));
    CHECK(it.at_least(3));
    it.signal(SIGKILL);
    CHECK(it.all_gone(3));
  }
}

TEST_CASE("kill -9 of the launcher's process group, as a shell kills a job") {
  for (const std::string& shape : shapes) {
    CAPTURE(shape);
    run it(shell(2, shape), {.terminal = true});  // the launcher leads a new session
    REQUIRE(it.shows("up", 2));
    ::kill(-it.pid(), SIGKILL);
    CHECK(it.all_gone(3));
  }
}

TEST_CASE("a terminal that closes") {
  run it(shell(2, "echo up; sleep 1000; true"), {.terminal = true});
  REQUIRE(it.shows("up", 2));
  it.hang_up();
  CHECK(it.all_gone(3));
}

TEST_CASE("kill -9 of the guard: the launcher ends what it guarded, and fails") {
  for (const std::string& shape : shapes) {
    CAPTURE(shape);
    run it(shell(3, shape));
    REQUIRE(it.shows("up", 3));
    const auto guard = children_of(it.pid());
    REQUIRE(guard.size() == 1);
    ::kill(guard[0], SIGKILL);
    CHECK(it.wait(3) == 1);
    CHECK(contains(it.err(), "the process that guards the ranks was killed"));
    CHECK(it.left().empty());
  }
}

TEST_CASE("kill -9 of launcher and guard at once still ends the ranks themselves") {
  run it({"-n", "3", "sh", "-c", "echo up; exec sleep 1000"});
  REQUIRE(it.shows("up", 3));
  const auto guard = children_of(it.pid());
  REQUIRE(guard.size() == 1);
  it.signal(SIGSTOP);
  ::kill(guard[0], SIGKILL);
  it.signal(SIGKILL);
  CHECK(it.all_gone(3));
}

TEST_CASE("the guard goes by another name than the launcher") {
  run it({"-n", "1", "sh", "-c", "echo up; exec sleep 1000"});
  REQUIRE(it.shows("up"));
  const auto guard = children_of(it.pid());
  REQUIRE(guard.size() == 1);
  std::ifstream comm("/proc/" + std::to_string(guard[0]) + "/comm");
  std::ifstream line("/proc/" + std::to_string(guard[0]) + "/cmdline");
  std::string name, words;
  std::getline(comm, name);
  std::getline(line, words, '\0');
  CHECK(name == "colls-guard");
  CHECK(words == "colls-guard");
}

TEST_CASE("kill -9 of a rank that is a shell ends the program that it started") {
  run it(shell(2, "[ $COLLS_RANK = 0 ] && { echo up $$; sleep 1000; true; }; exec sleep 1000",
               {"--grace", "0"}));
  REQUIRE(it.shows("up"));
  ::kill(std::atoi(it.out().c_str() + 7), SIGKILL);
  CHECK(it.wait(5) == 128 + SIGKILL);
  CHECK(contains(it.err(), "rank 0 failed: killed by SIGKILL"));
  CHECK(it.left().empty());
}

TEST_CASE("a rank that keeps forking is caught") {
  run it(shell(2, "echo up; while :; do (sleep 1000 &) ; sleep 0.01; done"));
  REQUIRE(it.shows("up", 2));
  (void)it.wait(0.3);
  it.signal(SIGKILL);
  CHECK(it.all_gone(3));
}

TEST_CASE("killed at any moment of its start, the launcher leaves nothing") {
  for (int i = 0; i < 60; ++i) {
    run it(shell(4, "sleep 1000; true"));
    ::usleep(static_cast<useconds_t>(i * 100));
    it.signal(SIGKILL);
    ::usleep(20000);  // until the guard has started its processes
    CHECK(it.all_gone(3));
  }
}

TEST_CASE("a job inside a job ends with it") {
  run it({"-n", "2", path_of_colls_run(), "-n", "2", "sh", "-c", "echo up; sleep 1000; true"});
  REQUIRE(it.shows("up", 4));
  it.signal(SIGKILL);
  CHECK(it.all_gone(3));
}
