// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-run starts all ranks again after a failure.

#include "launcher.hpp"

#include <set>

using namespace launcher_test;

namespace {

/// Returns the names of the job that the launcher says, one for each start.
std::set<std::string> jobs_of(const run& it) {
  std::set<std::string> found;
  for (const std::string& line : lines_of(it.err())) {
    const auto job = line.find(" ranks, job ");
    if (line.starts_with("colls-run: start ") && job != line.npos) found.insert(line.substr(job));
  }
  return found;
}

}  // namespace

TEST_CASE("all ranks start again after a failure, as another job") {
  run it(shell(3, fails_at_first(2, 1), {"--max-restarts", "2", "--grace", "0"}));
  CHECK(it.wait() == 0);
  for (const char* start : {"start 0 of 2 size 3", "start 1 of 2 size 3", "start 2 of 2 size 3"}) {
    CHECK(it.shows(start, 3));
  }
  CHECK(jobs_of(it).size() == 3);
  for (const char* start : {"start 1 of 3: 3 ranks", "start 2 of 3: 3 ranks", "start 3 of 3"}) {
    CHECK(count(it.err(), start) == 1);
  }
  CHECK(it.left().empty());
}

TEST_CASE("forty starts leave no descriptors and no processes behind") {
  const std::string counts_those_of_the_launcher =
      "ls /proc/$(ps -o ppid= $PPID | tr -d ' ')/fd | wc -l; exit 1";
  run it(shell(1, counts_those_of_the_launcher,
               {"--max-restarts", "39", "--grace", "0", "--no-prefix"}));
  CHECK(it.wait(60) == 1);
  CHECK(count(it.err(), "colls-run: start ") == 40);
  std::vector<int> counts;
  for (const std::string& line : lines_of(it.out())) counts.push_back(std::atoi(line.c_str()));
  REQUIRE(counts.size() == 40);
  // The launcher may still be opening its own when a rank counts, so the numbers vary a little.
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  CHECK(*least > 5);
  CHECK(*most - *least < 20);
  CHECK(it.left().empty());
}

TEST_CASE("when the restarts are used up, the last failure is the end") {
  run it(shell(2, "[ $COLLS_RANK = 1 ] && exit $((7 + COLLS_RESTART_COUNT)); exec sleep 1000",
               {"--max-restarts", "1", "--grace", "0"}));
  CHECK(it.wait() == 8);
  CHECK(count(it.err(), "colls-run: start ") == 2);
  CHECK(lines_of(it.err()).back() ==
        "colls-run: exit status 8: rank 1 (exit code 8) was the first to fail");
}

TEST_CASE("--on-failure restart alone allows three restarts, and --max-restarts 0 none") {
  run three(shell(1, "exit 4", {"--on-failure", "restart"}));
  CHECK(three.wait() == 4);
  CHECK(jobs_of(three).size() == 4);
  run none(shell(1, "echo $COLLS_RESTART_COUNT.; exit 4", {"--max-restarts", "0"}));
  CHECK(none.wait() == 4);
  CHECK(none.out() == "[0] .\n");
  CHECK(jobs_of(none).empty());
}

TEST_CASE("a rank that ends well is no reason to start again") {
  run it(shell(2, "exit 0", {"--max-restarts", "5"}));
  CHECK(it.wait() == 0);
  CHECK(count(it.err(), "colls-run: start ") == 1);
}

TEST_CASE("neither a signal to the launcher nor a missing program starts anything again") {
  for (const int signal : {SIGINT, SIGTERM}) {
    run it(shell(2, "echo up; exec sleep 1000", {"--max-restarts", "5", "--grace", "0.2"}));
    REQUIRE(it.shows("up", 2));
    it.signal(signal);
    CHECK(it.wait(8) == 128 + signal);
    CHECK(count(it.err(), "colls-run: start ") == 1);
  }
  run missing({"--max-restarts", "5", "-n", "2", "/no/such/program"});
  CHECK(missing.wait(8) == 127);
  CHECK(count(missing.err(), "colls-run: start ") == 1);
}

TEST_CASE("a program goes on from its checkpoint after each restart") {
  const std::string file =
      std::filesystem::temp_directory_path() / ("colls-restart-" + std::to_string(::getpid()));
  run it({"-n", "3", "--max-restarts", "2", "--grace", "0", "examples/restart", "--steps", "200",
          "--pause", "5", "--checkpoint", file});
  for (const char* start : {"after 0 restarts", "after 1 restarts"}) {
    REQUIRE(it.shows(start, 3));
    ::usleep(300'000);
    const std::vector<pid_t> ranks = it.left();
    REQUIRE(!ranks.empty());
    ::kill(ranks.back(), SIGKILL);
  }
  CHECK(it.wait() == 0);
  std::filesystem::remove(file);
  CHECK(contains(it.out(), "the sum of 200 steps on 3 ranks is 60300"));
  CHECK(count(it.out(), "is at step 0 after 0 restarts") == 3);
  CHECK(count(it.out(), "is at step 0 ") == 3);  // later starts have not begun anew
}

TEST_CASE("every start has the limits, the signals and the input of the first one") {
  const std::string script =
      "ulimit -n; grep -E '^Sig(Blk|Ign)' /proc/self/status; read line; echo got $line;"
      "exit $((1 - COLLS_RESTART_COUNT))";
  run it(shell(1, script, {"--max-restarts", "1"}), {.input = "one\ntwo\n"});
  CHECK(it.wait() == 0);
  const strings lines = lines_of(it.out());
  REQUIRE(lines.size() == 8);
  for (const std::size_t same : {0u, 1u, 2u}) CHECK(lines[same] == lines[same + 4]);
  CHECK(lines[3] == "[0] got one");
  CHECK(lines[7] == "[0] got two");
}
