// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Ranks of colls-run --on-failure replace die or are left out, and the others repair their world.

#include "launcher.hpp"

#include <algorithm>
#include <array>
#include <iterator>

using namespace launcher_test;

namespace {

constexpr int steps = 150;

/// The program of examples/12_repair.cpp on `ranks` ranks.
strings repair(int ranks, strings launcher = {}) {
  strings all = {"-n", std::to_string(ranks), "--on-failure", "replace"};
  all.insert(all.end(), launcher.begin(), launcher.end());
  all.insert(all.end(), {"examples/repair", "--steps", std::to_string(steps), "--pause", "5"});
  return all;
}

/// As `repair`, but replacements begin only after some seconds.
strings repair_late(int ranks, const std::string& options) {
  return shell(
      ranks, "[ -z \"$COLLS_REPLACEMENT\" ] || sleep 2; exec examples/repair --pause 5 " + options,
      {"--on-failure", "replace"});
}

/// Returns the process that is `rank` now.
pid_t process_of(const run& it, int rank) {
  pid_t last = -1;
  int last_number = -1;
  for (const pid_t each : it.left()) {
    if (variable_of(each, "COLLS_RANK") != std::to_string(rank)) continue;
    const int number = std::atoi(variable_of(each, "COLLS_REPLACEMENT").c_str());
    if (number > last_number) last = each;
    last_number = std::max(last_number, number);
  }
  REQUIRE(last > 0);
  return last;
}

/// Sends a signal to the process that is `rank` now.
void send(const run& it, int rank, int signal) { ::kill(process_of(it, rank), signal); }

/// Starts the program by hand with the environment of another process. Returns what it prints after
/// its exit status.
std::string start_as(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  strings entries;
  for (std::string entry; std::getline(file, entry, '\0');) entries.push_back(entry);
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(ends[1], 1);
    ::dup2(ends[1], 2);
    char* const command[] = {const_cast<char*>("examples/repair"), nullptr};
    ::execve(command[0], command, environment.data());
    ::_exit(125);
  }
  ::close(ends[1]);
  std::string text;
  char bytes[4096];
  for (ssize_t size = 0; (size = ::read(ends[0], bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<std::size_t>(size));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  return std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) + " " + text;
}

/// Waits until `ranks` ranks are at work in this generation.
bool are_at_work(run& it, int ranks, int generation) {
  return it.shows("in generation " + std::to_string(generation), ranks);
}

/// What the program prints if all steps were done by `ranks` ranks, each step once.
std::string result(int ranks) {
  long sum = 0;
  for (int step = 0; step < steps; ++step) {
    for (int rank = 0; rank < ranks; ++rank) sum += rank + step;
  }
  return "the sum of " + std::to_string(steps) + " steps on " + std::to_string(ranks) +
         " ranks is " + std::to_string(sum);
}

}  // namespace

TEST_CASE("a rank that is killed is replaced, and each step is done once") {
  for (const int rank : {0, 2}) {
    CAPTURE(rank);
    const std::string name = "rank " + std::to_string(rank);
    run it(repair(3));
    REQUIRE(are_at_work(it, 3, 0));
    send(it, rank, SIGKILL);
    CHECK(are_at_work(it, 3, 1));
    CHECK(it.wait() == 0);
    CAPTURE(it.out());
    CAPTURE(it.err());
    CHECK(contains(it.out(), result(3)));
    CHECK(contains(it.err(), name + " failed: killed by SIGKILL"));
    CHECK(contains(it.err(), "a replacement for " + name + " starts, 1 of at most 3"));
    CHECK(it.left().empty());
  }
}

TEST_CASE("rank after rank is replaced, replacements and several at once too") {
  run it(repair(4, {"--max-restarts", "6"}));
  int generation = 0;
  for (const std::vector<int>& lost : {std::vector{1}, {1}, {0, 3}, {2}}) {
    REQUIRE(are_at_work(it, 4, generation));
    for (const int rank : lost) send(it, rank, SIGKILL);
    ++generation;
  }
  // The two that die at once may be replaced one after the other.
  CHECK(it.shows("4 is at step", 4 * (generation + 1)));
  CHECK(it.wait() == 0);
  CAPTURE(it.out());
  CAPTURE(it.err());
  CHECK(contains(it.out(), result(4)));
  CHECK(contains(it.err(), "starts, 5 of at most 6"));
  CHECK_FALSE(contains(it.err(), "starts, 6 of at most 6"));
}

TEST_CASE("when the replacements are used up, the next failure is the end") {
  run it(repair(2, {"--max-restarts", "1", "--grace", "1"}));
  REQUIRE(are_at_work(it, 2, 0));
  send(it, 0, SIGKILL);
  REQUIRE(are_at_work(it, 2, 1));
  send(it, 1, SIGKILL);
  CHECK(it.wait() == 128 + SIGKILL);
  CHECK(contains(it.err(), "no replacement for rank 1: 1 have been started"));
  CHECK(contains(it.out() + it.err(), "no_replacement"));
  CHECK(it.all_gone(5));
}

TEST_CASE(
    "a replacement that never joins is killed with the job, and --max-restarts 0 starts none") {
  for (const bool has_none : {false, true}) {
    CAPTURE(has_none);
    const std::string script =
        "[ -z \"$COLLS_REPLACEMENT\" ] || exec sleep 1000; exec examples/repair --wait 0.5";
    run it(
        shell(2, script,
              {"--on-failure", "replace", "--grace", "1", "--max-restarts", has_none ? "0" : "2"}));
    REQUIRE(are_at_work(it, 2, 0));
    send(it, 1, SIGKILL);
    CHECK(it.wait() == 128 + SIGKILL);
    CAPTURE(it.out());
    CAPTURE(it.err());
    CHECK(contains(it.err(), has_none
                                 ? "no replacement for rank 1: 0 have been started"
                                 : "there are 1 ranks, 0 of them replacements, and 2 are needed"));
    CHECK(it.all_gone(5));
  }
}

TEST_CASE("with fewer ranks the job goes on, and takes in a replacement that comes later") {
  run it(repair_late(3, "--steps 1200 --at-least 2 --wait 0.2"));
  REQUIRE(are_at_work(it, 3, 0));
  send(it, 0, SIGKILL);
  CHECK(it.shows("rank 0 of 2 is at step"));
  CHECK(it.shows("rank 1 of 2 is at step"));
  CHECK(are_at_work(it, 3, 1));
  CHECK(it.wait() == 0);
  CAPTURE(it.out());
  CAPTURE(it.err());
  CHECK(contains(it.out(), "the sum of 1200 steps on 3 ranks is"));
  // The ranks that were left come from generation 0, in which they were 1 and 2.
  CHECK(count(it.out(), "of 2 is at step") == 2);
  CHECK(it.left().empty());
}

TEST_CASE("fewer replacements than lost ranks: the ranks are numbered without gaps") {
  const std::string script =
      "[ \"$COLLS_REPLACEMENT\" = 2 ] && exec sleep 1000;"
      "exec examples/repair --steps 150 --pause 5 --at-least 3 --wait 2.5";
  run it(shell(4, script, {"--on-failure", "replace"}));
  REQUIRE(are_at_work(it, 4, 0));
  for (const int rank : {0, 2}) send(it, rank, SIGKILL);
  CHECK(are_at_work(it, 3, 1));
  CHECK(it.wait() == 0);
  CAPTURE(it.out());
  CAPTURE(it.err());
  for (const char* rank : {"0", "1", "2"})
    CHECK(contains(it.out(), std::string("rank ") + rank + " of 3 is at step"));
  CHECK(contains(it.out(), "steps on 3 ranks is"));
  CHECK(it.left().empty());
}

TEST_CASE("a rank that is alone learns that a replacement waits") {
  run it(repair_late(2, "--steps 1200 --at-least 1 --wait 0.2"));
  REQUIRE(are_at_work(it, 2, 0));
  send(it, 0, SIGKILL);
  CHECK(it.shows("rank 0 of 1 is at step"));
  CHECK(are_at_work(it, 2, 1));
  CHECK(it.wait() == 0);
}

TEST_CASE("ranks that pass different options are told so at once") {
  run it(shell(3, "exec examples/repair --at-least $((COLLS_RANK + 1)) --wait 60",
               {"--on-failure", "replace", "--grace", "1"}));
  REQUIRE(are_at_work(it, 3, 0));
  send(it, 1, SIGKILL);
  CHECK(it.wait(15) != 0);
  CHECK(count(it.out() + it.err(), "the ranks passed different options") >= 2);
  CHECK(it.all_gone(5));
}

/// Returns the number of lines of a file, or of entries of a folder.
long count_lines(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    const std::filesystem::directory_iterator all(path);
    return std::distance(begin(all), end(all));
  }
  std::ifstream file(path);
  return std::count(std::istreambuf_iterator<char>(file), {}, '\n');
}

TEST_CASE("ten repairs later nothing is left of the lost ranks, in the launcher and in a rank") {
  const int repairs = std::getenv("COLLS_TEST_FULL") == nullptr ? 10 : 100;
  run it(shell(3,
               "exec examples/repair --steps " + std::to_string(300 + 30 * repairs) + " --pause 5",
               {"--on-failure", "replace", "--max-restarts", std::to_string(repairs)}));
  REQUIRE(are_at_work(it, 3, 0));
  const std::string launcher = "/proc/" + std::to_string(it.pid());
  const std::string rank = "/proc/" + std::to_string(process_of(it, 0));
  const auto resources = [&] {
    return std::array{count_lines(launcher + "/fd"), count_lines(launcher + "/maps"),
                      count_lines(rank + "/fd"), count_lines(rank + "/maps")};
  };
  std::array<long, 4> after_two{};
  for (int generation = 0; generation < repairs; ++generation) {
    REQUIRE(are_at_work(it, 3, generation));
    if (generation == 2) after_two = resources();
    send(it, 1 + generation % 2, SIGKILL);
  }
  REQUIRE(are_at_work(it, 3, repairs));
  const auto at_last = resources();
  for (std::size_t i = 0; i < at_last.size(); ++i) {
    CAPTURE(i);
    CAPTURE(after_two[i]);
    CHECK(at_last[i] < after_two[i] + 6);
  }
  CHECK(it.wait() == 0);
}

TEST_CASE("a replacement that fails before it joins is replaced, too") {
  const std::string script =
      "[ \"$COLLS_REPLACEMENT\" = 1 ] && exit 3; exec examples/repair --steps 150 --pause 5";
  run it(shell(3, script, {"--on-failure", "replace"}));
  REQUIRE(are_at_work(it, 3, 0));
  send(it, 1, SIGKILL);
  CHECK(are_at_work(it, 3, 1));
  CHECK(it.wait() == 0);
  CHECK(contains(it.out(), result(3)));
  CHECK(contains(it.err(), "a replacement for rank 1 starts, 2 of at most 3"));
}

TEST_CASE("all ranks but one die, and one after the other joins what is left") {
  run it(repair(4));
  REQUIRE(are_at_work(it, 4, 0));
  for (const int rank : {0, 1, 3}) send(it, rank, SIGKILL);
  CHECK(it.shows("4 is at step", 8));
  CAPTURE(it.out());
  CAPTURE(it.err());
  CHECK(it.wait() == 0);
  CHECK(contains(it.out(), result(4)));
  CHECK(contains(it.err(), "starts, 3 of at most 3"));
}

TEST_CASE("a process that is started by hand takes no rank that lives") {
  run it(repair(2));
  REQUIRE(are_at_work(it, 2, 0));
  const std::string of_the_start = start_as(process_of(it, 1));
  send(it, 1, SIGKILL);
  REQUIRE(are_at_work(it, 2, 1));
  const std::string of_a_replacement = start_as(process_of(it, 1));
  CHECK(it.wait() == 0);
  CHECK(contains(it.out(), result(2)));
  for (const std::string& each : {of_the_start, of_a_replacement}) {
    CAPTURE(each);
    CHECK(each.starts_with("1 "));
    CHECK(contains(each, "rank_taken"));
  }
}

TEST_CASE("if no rank is left, the job ends") {
  run it(repair(2, {"--max-restarts", "5"}));
  REQUIRE(are_at_work(it, 2, 0));
  for (const int rank : {0, 1}) send(it, rank, SIGKILL);
  CHECK(it.wait(20) == 128 + SIGKILL);
  CHECK(contains(it.err(), "no rank is left with which the replacements could go on"));
  CHECK(it.all_gone(5));
}

TEST_CASE("a replacement that waits does not outlive the last rank") {
  run it(repair(2));
  REQUIRE(are_at_work(it, 2, 0));
  const pid_t last = process_of(it, 1);
  ::kill(last, SIGSTOP);
  send(it, 0, SIGKILL);
  REQUIRE(it.shows("a replacement for rank 0 starts"));
  ::usleep(300'000);  // it waits for its place, which only the stopped rank could give it
  ::kill(last, SIGKILL);
  CHECK(it.wait(20) == 128 + SIGKILL);
  CHECK(contains(it.err(), "no rank is left with which the replacements could go on"));
  CHECK(it.all_gone(5));
}

TEST_CASE("ranks that no launcher replaces are told to shrink") {
  run it({"-n", "3", "--on-failure", "shrink", "examples/repair"});
  REQUIRE(are_at_work(it, 3, 0));
  send(it, 2, SIGKILL);
  CHECK(it.wait() != 0);
  CHECK(contains(it.out() + it.err(), "no launcher starts replacements"));
  CHECK(contains(it.out() + it.err(), "call shrink()"));
}

TEST_CASE("without --on-failure replace no rank learns of a launcher") {
  run environment(shell(1, "echo $COLLS_LAUNCHER. $COLLS_REPLACEMENT.", {"--on-failure", "stop"}),
                  {.environment = {"COLLS_LAUNCHER=tcp://127.0.0.1:1", "COLLS_REPLACEMENT=1"}});
  CHECK(environment.wait() == 0);
  CHECK(environment.out() == "[0] . .\n");
}
