// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Signals to colls-run, sent by kill and typed at a terminal.

#include "launcher.hpp"

using namespace launcher_test;

namespace {

// Returns a script that prints "up" once its traps are set, and then waits.
std::string waiting_with(const std::string& traps) {
  return traps + "; echo up; while :; do sleep 0.05; done";
}

char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const auto close = text.rfind(')');
  return close == text.npos ? '?' : text[close + 2];
}

// A shell whose child is stopped before its exec is in state D.
bool is_stopped(pid_t pid) { return state_of(pid) == 'T' || state_of(pid) == 'D'; }

bool becomes(pid_t pid, bool stopped) {
  const auto began = clock::now();
  while (is_stopped(pid) != stopped) {
    if (seconds_since(began) > 10) return false;
    ::usleep(1000);
  }
  return true;
}

}  // namespace

TEST_CASE("USR1, USR2, HUP, TERM, QUIT and INT reach every rank") {
  const struct {
    int number;
    const char* name;
  } all[] = {{SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGHUP, "HUP"},
             {SIGTERM, "TERM"}, {SIGQUIT, "QUIT"}, {SIGINT, "INT"}};
  for (const auto& [number, name] : all) {
    CAPTURE(name);
    run it(shell(3, waiting_with(std::string("trap 'echo got ") + name + "; exit 0' " + name)));
    REQUIRE(it.shows("up", 3));
    it.signal(number);
    CHECK(it.wait(5) == 0);
    CHECK(it.shows(std::string("got ") + name, 3));
  }
}

TEST_CASE("USR1 leaves a program that takes it running") {
  run it(shell(2, waiting_with("trap 'echo got' USR1")));
  REQUIRE(it.shows("up", 2));
  for (int i = 1; i <= 3; ++i) {
    it.signal(SIGUSR1);
    REQUIRE(it.shows("got", 2 * i));
  }
  CHECK(it.at_least(2));
}

TEST_CASE("a signal that ends the ranks gives 128 + n, in a line and not as a failure") {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    run it({"-n", "3", "sh", "-c", "echo up; exec sleep 100"});
    REQUIRE(it.shows("up", 3));
    it.signal(number);
    CHECK(it.wait(5) == 128 + number);
    CHECK(!contains(it.err(), "failed:"));
    CHECK(contains(it.err(), "sent to 3 ranks"));
    CHECK(it.left().empty());
  }
}

TEST_CASE("a rank that crashes on the way out is still explained") {
  run it(shell(2, waiting_with("ulimit -c 0; trap 'kill -SEGV $$' TERM")));
  REQUIRE(it.shows("up", 2));
  it.signal(SIGTERM);
  CHECK(it.wait(5) == 128 + SIGSEGV);
  CHECK(contains(it.err(), "failed: killed by SIGSEGV"));
}

TEST_CASE("a shell that started the program does not keep the signal from it") {
  const std::string inner = waiting_with("trap 'echo inner; exit 0' USR1");
  run it(shell(2, "trap : USR1; sh -c \"" + inner + "\"; true"));
  REQUIRE(it.shows("up", 2));
  it.signal(SIGUSR1);
  CHECK(it.wait(5) == 0);
  CHECK(it.shows("inner", 2));
}

TEST_CASE("a second Ctrl-C kills at once") {
  run it(shell(2, waiting_with("trap 'echo not now' INT TERM"), {"--grace", "100"}));
  REQUIRE(it.shows("up", 2));
  it.signal(SIGINT);
  REQUIRE(it.shows("not now", 2));
  CHECK(contains(it.err(), "SIGINT sent to 2 ranks; once more kills them"));
  it.signal(SIGINT);
  CHECK(it.wait(2) == 128 + SIGKILL);
  CHECK(!contains(it.err(), "out of memory"));
  CHECK(it.left().empty());
}

TEST_CASE("ranks that ignore Ctrl-C get --grace seconds") {
  run it(shell(2, "trap '' INT; trap 'exit 6' TERM; echo up; while :; do sleep 0.05; done",
               {"--grace", "0.3"}));
  REQUIRE(it.shows("up", 2));
  it.signal(SIGINT);
  CHECK(it.wait(3) == 6);
  CHECK(contains(it.err(), "SIGTERM to what still runs: rank 0, 1"));
}

TEST_CASE("Ctrl-C at a terminal") {
  run it(shell(2, waiting_with("trap 'echo got it; exit 0' INT")), {.terminal = true});
  REQUIRE(it.shows("up", 2));
  it.type("\x03");
  CHECK(it.wait(5) == 0);
  CHECK(it.shows("got it", 2));
}

TEST_CASE("TSTP stops the launcher and its ranks, CONT lets all go on") {
  run it(shell(2, "echo up $$; while :; do sleep 0.05; done"));
  REQUIRE(it.shows("up", 2));
  std::vector<pid_t> all = {it.pid()};
  for (const std::string& line : lines_of(it.out())) all.push_back(std::atoi(line.c_str() + 7));
  it.signal(SIGTSTP);
  for (const pid_t pid : all) CHECK(becomes(pid, true));
  it.signal(SIGCONT);
  for (const pid_t pid : all) CHECK(becomes(pid, false));
  it.signal(SIGTERM);
  CHECK(it.wait(5) == 128 + SIGTERM);
}

TEST_CASE("a launcher that is killed while it is stopped leaves nothing") {
  run it(shell(2, "echo up; sleep 1000"));
  REQUIRE(it.shows("up", 2));
  it.signal(SIGTSTP);
  CHECK(becomes(it.pid(), true));
  it.signal(SIGKILL);
  CHECK(it.all_gone(3));
}

TEST_CASE("what was ignored before stays ignored, here and in the ranks") {
  // As nohup does, and as a script's `&` does for Ctrl-C.
  run it(shell(1, "echo up; sleep 0.3; kill -HUP $$; kill -INT $$; echo alive"),
         {.ignored = {SIGHUP, SIGINT}});
  REQUIRE(it.shows("up"));
  it.signal(SIGHUP);
  it.signal(SIGINT);
  CHECK(it.wait(5) == 0);
  CHECK(it.out() == "[0] up\n[0] alive\n");
  CHECK(it.err() == "");
}

TEST_CASE("a rank starts with the signal mask and dispositions of its launcher") {
  std::ifstream file("/proc/self/status");
  const std::string mine((std::istreambuf_iterator<char>(file)), {});
  run it({"-n", "1", "cat", "/proc/self/status"}, {.ignored = {SIGHUP, SIGUSR1}});
  CHECK(it.wait() == 0);
  const auto at = mine.find("SigBlk:");
  CHECK(contains(it.out(), mine.substr(at, mine.find('\n', at) - at)));
  CHECK(contains(it.out(), "SigIgn:\t0000000000000201\n"));
}
