// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The end of colls-run: exit statuses, the explanation of the first failure, and what follows it.

#include "launcher.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

using namespace launcher_test;

TEST_CASE("0 when every rank gives 0, also when they end one after another") {
  run it(shell(4, "sleep 0.$COLLS_RANK; exit 0"));
  CHECK(it.wait() == 0);
  CHECK(it.err() == "");
}

TEST_CASE("the exit status of the rank that failed first") {
  run it(shell(4, "[ $COLLS_RANK = 2 ] && exit 7; sleep 0.3; exit 9"));
  CHECK(it.wait() == 7);
  CHECK(contains(it.err(), "colls-run: rank 2 failed: exit code 7\n"));
  CHECK(!contains(it.err(), "exit code 9"));
  CHECK(lines_of(it.err()).back() ==
        "colls-run: exit status 7: rank 2 (exit code 7) was the first to fail");
}

TEST_CASE("the first to die is named, whatever its rank, though others follow at once") {
  // Rank 3 dies. The others fail as soon as they see its end of the pipe closed, a moment before
  // the launcher can see the death.
  for (int i = 0; i < 20; ++i) {
    char name[] = "/tmp/launcher-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    REQUIRE(::mkfifo((std::string(name) + "/fifo").c_str(), 0600) == 0);
    run it(shell(4, "cd " + std::string(name) +
                        "; if [ $COLLS_RANK = 3 ]; then exec 3>fifo;"
                        " while [ ! -e 0 -o ! -e 1 -o ! -e 2 ]; do :; done; kill -KILL $$; fi;"
                        " exec 3<fifo; : > $COLLS_RANK; read wait <&3; exit 1"));
    CHECK(it.wait() == 128 + SIGKILL);
    CHECK(contains(it.err(), "rank 3 failed: killed by SIGKILL"));
    std::filesystem::remove_all(name);
  }
}

TEST_CASE("128 + n for a signal, with its name") {
  const struct {
    const char* name;
    int number;
  } all[] = {
      {"TERM", SIGTERM}, {"SEGV", SIGSEGV}, {"ABRT", SIGABRT}, {"FPE", SIGFPE}, {"KILL", SIGKILL}};
  for (const auto& [name, number] : all) {
    run it(shell(1, std::string("ulimit -c 0; kill -") + name + " $$"));
    CHECK(it.wait() == 128 + number);
    CHECK(contains(it.err(), std::string("rank 0 failed: killed by SIG") + name + "\n"));
  }
}

TEST_CASE("the explanation: host, pid, time and the last lines on standard error") {
  run it(shell(
      2,
      "[ $COLLS_RANK = 1 ] || { sleep 0.5; exit 0; }; echo pid $$; sleep 0.1;"
      "for i in 1 2 3 4 5 6 7; do echo error $i >&2; done; printf 'and the end' >&2; exit 3"));
  CHECK(it.wait() == 3);
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  const std::string pid = lines_of(it.out()).at(0).substr(8);
  const strings all = lines_of(it.err());
  const auto block = std::find(all.begin(), all.end(), "colls-run: rank 1 failed: exit code 3");
  REQUIRE(all.end() - block >= 8);
  const std::string start = "    host " + std::string(host) + ", pid " + pid + ", ";
  CHECK(block[1].starts_with(start));
  CHECK(std::atof(block[1].substr(std::min(start.size(), block[1].size())).c_str()) >= 0.1);
  CHECK(block[1].ends_with(" s after the start"));
  CHECK(block[2] == "    its last lines on stderr:");
  CHECK(block[3] == "        error 4");
  CHECK(block[7] == "        and the end");
  // The complete output of the rank comes before that.
  CHECK(std::find(all.begin(), block, "[1] and the end") != block);
}

TEST_CASE("a program that is not there: 127, and one that cannot run: 126, in one line") {
  const struct {
    strings line;
    int status;
    const char* says;
  } all[] = {
      {{"-n", "3", "./nowhere"}, 127, "colls-run: ./nowhere: No such file or directory\n"},
      {{"-n", "3", "no-such-command"}, 127, "colls-run: no-such-command: command not found\n"},
      {{"-n", "3", "/etc/passwd"},
       126,
       "colls-run: /etc/passwd: Permission denied: the file is not executable\n"},
      {{"-n", "3", "/tmp"}, 126, "colls-run: /tmp: Permission denied: it is a directory\n"},
      {{"-n", "3", "tests"}, 127, "colls-run: tests: command not found\n"},  // a folder here
  };
  for (const auto& [line, status, says] : all) {
    run it(line);
    CHECK(it.wait(5) == status);
    CHECK(it.err() == says);
    CHECK(it.out() == "");
  }
}

TEST_CASE("a script whose interpreter is missing") {
  char name[] = "/tmp/launcher-test-XXXXXX";
  const int fd = ::mkstemp(name);
  REQUIRE(::write(fd, "#!/no/such/shell\n", 17) == 17);
  ::fchmod(fd, 0700);
  ::close(fd);
  run it({"-n", "1", name});
  CHECK(it.wait(5) == 127);
  CHECK(contains(it.err(), "its interpreter was not found"));
  ::unlink(name);
}

TEST_CASE("after a failure the others have --grace seconds, then SIGTERM") {
  run it(shell(
      3,
      "[ $COLLS_RANK = 0 ] && exit 5; trap 'echo told; exit 1' TERM; while :; do sleep 0.05; done",
      {"--grace", "0.4"}));
  CHECK(it.wait() == 5);
  CHECK(it.seconds() > 0.4);
  CHECK(it.shows("told", 2));
  CHECK(contains(it.err(), "colls-run: SIGTERM to what still runs: rank 1, 2\n"));
  CHECK(it.left().empty());
}

TEST_CASE("ranks that end by themselves in that time get no signal") {
  run it(shell(2, "[ $COLLS_RANK = 0 ] && exit 5; sleep 0.5; echo saved", {"--grace", "20"}));
  CHECK(it.wait() == 5);
  CHECK(it.seconds() < 10);
  CHECK(it.shows("[1] saved"));
  CHECK(!contains(it.err(), "SIGTERM"));
}

TEST_CASE("a rank that ignores SIGTERM gets SIGKILL three seconds later") {
  run it(shell(2, "trap '' TERM; [ $COLLS_RANK = 0 ] && { sleep 0.3; exit 5; }; sleep 1000",
               {"--grace", "0"}));
  CHECK(it.wait() == 5);
  CHECK(it.seconds() > 3);
  CHECK(contains(it.err(), "colls-run: SIGKILL to what still runs: rank 1\n"));
  CHECK(it.left().empty());
}

TEST_CASE("a stopped rank does not outlive its job, and can still handle SIGTERM") {
  run it(shell(2,
               "[ $COLLS_RANK = 0 ] && { sleep 0.2; exit 5; };"
               "trap 'echo woken; exit 1' TERM; kill -STOP $$",
               {"--grace", "0.1"}));
  CHECK(it.wait() == 5);
  CHECK(it.shows("[1] woken"));
  CHECK(it.left().empty());
}

TEST_CASE("with --on-failure shrink the others go on, and every loss is told") {
  for (const strings& options : {strings{"--keep-going"}, {"--on-failure", "shrink"}}) {
    const std::string all_but_one_fail =
        "[ $COLLS_RANK = 0 ] && exit 5; [ $COLLS_RANK = 1 ] && { sleep 0.5; kill -9 $$; };"
        "sleep 1; echo finished";
    run it(shell(3, all_but_one_fail, options));
    CHECK(it.wait() == 0);
    CHECK(it.shows("[2] finished"));
    CHECK(contains(it.err(), "rank 0 failed: exit code 5"));
    CHECK(contains(it.err(), "rank 1 failed: killed by SIGKILL"));
    CHECK(!contains(it.err(), "was the first to fail"));
  }
}

TEST_CASE("with --on-failure shrink a program goes on with the ranks that are left") {
  run it(
      {"-n", "4", "--on-failure", "shrink", "examples/shrink", "--steps", "200", "--pause", "5"});
  REQUIRE(it.shows("of 4 is at step 0", 4));
  ::usleep(100'000);
  for (const char* then : {"rank 0 of 3 is at step", "rank 0 of 2 is at step"}) {
    const std::vector<pid_t> ranks = it.left();
    REQUIRE(ranks.size() >= 2);
    ::kill(ranks[1], SIGKILL);
    REQUIRE(it.shows(then));
  }
  CHECK(it.wait() == 0);
  CHECK(contains(it.out(), "the sum of 200 steps is 92300000, on 2 ranks"));
}

TEST_CASE(
    "with --on-failure shrink a failure of all ranks, or of the last one, is one of the job") {
  const char* const scripts[] = {
      "sleep 0.$COLLS_RANK; exit $((5 + COLLS_RANK))",      // no rank ends well
      "[ $COLLS_RANK = 1 ] && exit 0; sleep 0.5; exit 5"};  // one ends well before another fails
  for (const char* const script : scripts) {
    CAPTURE(std::string(script));
    run it(shell(2, script, {"--on-failure", "shrink"}));
    CHECK(it.wait() == 5);
    CHECK(contains(it.err(), "exit status 5: rank 0 (exit code 5) was the first to fail"));
  }
}

TEST_CASE("a rank that ends well while others work is no failure") {
  run it(shell(2, "[ $COLLS_RANK = 0 ] && exit 0; sleep 1; echo finished", {"--grace", "0"}));
  CHECK(it.wait() == 0);
  CHECK(it.shows("[1] finished"));
  CHECK(it.err() == "");
}

TEST_CASE("what ranks leave behind in the background ends with the job") {
  run it(shell(2, "setsid sleep 1000 & sleep 1000 & exit 0"));
  CHECK(it.wait(10) == 0);
  CHECK(it.left().empty());
}

TEST_CASE("colls-run waits for a helper process that is about to end") {
  run it({"-n", "1", "bash", "-c", "echo through a helper > >(sleep 0.2; cat)"});
  CHECK(it.wait() == 0);
  CHECK(it.out() == "[0] through a helper\n");
}

TEST_CASE("256 ranks within a limit of 300 open files, which the ranks keep") {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  if (before.rlim_max < 2048) {
    MESSAGE("skipped: the hard limit on open files is below 2048");
    return;
  }
  const rlimit small{300, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &small);
  run it(shell(256, "ulimit -n"));
  ::setrlimit(RLIMIT_NOFILE, &before);
  CHECK(it.wait() == 0);
  const strings all = lines_of(it.out());
  CHECK(all.size() == 256);
  CHECK(std::count_if(all.begin(), all.end(),
                      [](const auto& line) { return line.ends_with("] 300"); }) == 256);
}

TEST_CASE("a rank has the descriptors that it would have without a launcher") {
  const std::string list = "ls /proc/self/fd | tr '\\n' ' '; echo";
  FILE* const direct = ::popen(list.c_str(), "r");
  char line[1000] = {};
  REQUIRE(std::fgets(line, sizeof line, direct) != nullptr);
  ::pclose(direct);
  run it(shell(2, list));
  CHECK(it.wait() == 0);
  CHECK(it.shows("] " + std::string(line), 2));
}
