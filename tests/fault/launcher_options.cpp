// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The command line of colls-run and the environment of its ranks.

#include "launcher.hpp"

#include <sys/stat.h>

using namespace launcher_test;

namespace {

// Returns the value of the variable `name` that a rank printed by `env`.
std::string value_of(const std::string& out, int rank, const std::string& name) {
  const std::string start = "[" + std::to_string(rank) + "] " + name + "=";
  for (const std::string& line : lines_of(out)) {
    if (line.starts_with(start)) return line.substr(start.size());
  }
  return "(not set)";
}

struct file {
  file(const std::string& text, mode_t mode) {
    char name[] = "/tmp/launcher-test-XXXXXX";
    const int fd = ::mkstemp(name);
    REQUIRE(::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    ::fchmod(fd, mode);
    ::close(fd);
    path = name;
  }
  ~file() { ::unlink(path.c_str()); }
  std::string path;
};

}  // namespace

TEST_CASE("the environment of a rank has its number and its world") {
  run it({"-n", "3", "env"}, {.environment = {"OMP_NUM_THREADS"}});
  CHECK(it.wait() == 0);
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(value_of(it.out(), rank, "COLLS_RANK") == std::to_string(rank));
    CHECK(value_of(it.out(), rank, "COLLS_LOCAL_RANK") == std::to_string(rank));
    CHECK(value_of(it.out(), rank, "COLLS_WORLD_SIZE") == "3");
    CHECK(value_of(it.out(), rank, "COLLS_LOCAL_WORLD_SIZE") == "3");
    CHECK(value_of(it.out(), rank, "COLLS_NODE_RANK") == "0");
    CHECK(value_of(it.out(), rank, "COLLS_NNODES") == "1");
    CHECK(value_of(it.out(), rank, "COLLS_STORE").starts_with("tcp://127.0.0.1:"));
    CHECK(value_of(it.out(), rank, "COLLS_STORE") == value_of(it.out(), 0, "COLLS_STORE"));
    CHECK(value_of(it.out(), rank, "COLLS_JOB") == value_of(it.out(), 0, "COLLS_JOB"));
    CHECK(value_of(it.out(), rank, "COLLS_SECRET") == value_of(it.out(), 0, "COLLS_SECRET"));
    CHECK(value_of(it.out(), rank, "OMP_NUM_THREADS") == "1");
  }
  CHECK(value_of(it.out(), 0, "COLLS_SECRET").size() == 64);
  CHECK(value_of(it.out(), 0, "COLLS_SECRET").find_first_not_of("0123456789abcdef") ==
        std::string::npos);
}

TEST_CASE("every job has another secret, store and name") {
  const strings line = {"-n", "1", "sh", "-c", "echo $COLLS_SECRET $COLLS_STORE $COLLS_JOB"};
  run first(line), second(line);
  CHECK(first.wait() == 0);
  CHECK(second.wait() == 0);
  CHECK(first.out() != second.out());
}

TEST_CASE("the secret appears in no argument vector") {
  run it(shell(2, "echo $COLLS_SECRET; cat /proc/*/cmdline | tr '\\0' ' ' >&2; echo >&2"));
  CHECK(it.wait() == 0);
  const std::string secret = lines_of(it.out()).at(0).substr(4);
  REQUIRE(secret.size() == 64);
  CHECK(contains(it.err(), "sh -c echo"));
  CHECK(!contains(it.err(), secret));
}

TEST_CASE("colls-run sets OMP_NUM_THREADS if it is not set and ranks share the machine") {
  run given({"-n", "2", "env"}, {.environment = {"OMP_NUM_THREADS=7"}});
  CHECK(given.wait() == 0);
  CHECK(value_of(given.out(), 1, "OMP_NUM_THREADS") == "7");
  run alone({"-n", "1", "env"}, {.environment = {"OMP_NUM_THREADS"}});
  CHECK(alone.wait() == 0);
  CHECK(value_of(alone.out(), 0, "OMP_NUM_THREADS") == "(not set)");
}

TEST_CASE("-x sets variables, and the innermost launcher wins") {
  run it({"-n", "2", "-x", "A=1 2=3", "-x", "B", "-x", "C=", "env"},
         {.environment = {"B=from outside", "COLLS_RANK=17", "COLLS_SECRET=old"}});
  CHECK(it.wait() == 0);
  CHECK(value_of(it.out(), 1, "A") == "1 2=3");
  CHECK(value_of(it.out(), 1, "B") == "from outside");
  CHECK(value_of(it.out(), 1, "C") == "");
  CHECK(value_of(it.out(), 1, "COLLS_RANK") == "1");
  CHECK(value_of(it.out(), 1, "COLLS_SECRET").size() == 64);
}

TEST_CASE("everything after the program's name is the program's") {
  for (const strings& line :
       {strings{"-n", "1", "echo", "--help", "-n", "9", "--", "--no-prefix"},
        strings{"-n", "1", "--", "echo", "--help", "-n", "9", "--", "--no-prefix"},
        strings{"-n1", "echo", "--help", "-n", "9", "--", "--no-prefix"}}) {
    run it(line);
    CHECK(it.wait() == 0);
    CHECK(it.out() == "[0] --help -n 9 -- --no-prefix\n");
  }
}

TEST_CASE("torchrun's and mpirun's spellings") {
  for (const strings& line :
       {strings{"-n", "2"}, strings{"-np", "2"}, strings{"--nproc-per-node", "2"},
        strings{"--nproc_per_node", "2"}, strings{"--nproc_per_node=2"},
        strings{"--standalone", "--nnodes=1", "--nproc-per-node=2"},
        strings{"--nnodes", "1", "--node_rank", "0", "--master_addr", "127.0.0.1", "-n", "2"},
        strings{"--no_python", "--nproc-per-node", "2"}, strings{"--oversubscribe", "-n", "2"}}) {
    CAPTURE(line[0]);
    strings all = line;
    all.insert(all.end(), {"sh", "-c", "echo of $COLLS_WORLD_SIZE"});
    run it(all);
    CHECK(it.wait() == 0);
    CHECK(it.shows("of 2", 2));
  }
}

TEST_CASE("mistakes on the command line end with 2 and one sentence") {
  const struct {
    strings line;
    const char* says;
  } all[] = {
      {{"true"}, "how many processes? pass -n N"},
      {{"-n", "2"}, "no program to run"},
      {{"-n", "0", "true"}, "--nproc-per-node 0 is out of range: 1..65536"},
      {{"-n", "-1", "true"}, "--nproc-per-node -1 is out of range"},
      {{"-n", "two", "true"}, "--nproc-per-node two is not a whole number"},
      {{"-n", "99999999999999999999", "true"}, "is out of range"},
      {{"-n", "2", "--bogus", "true"}, "there is no option --bogus"},
      {{"-n", "2", "-H", "a,b", "true"}, "there is no option -H"},
      {{"-n", "2", "-hostfile", "hosts", "true"}, "there is no option -hostfile"},
      {{"-n", "2", "--keep-going=yes", "true"}, "there is no option --keep-going=yes"},
      {{"-n"}, "-n needs a value"},
      {{"-n", "2", "--grace"}, "--grace needs a value"},
      {{"-n", "2", "-n", "3", "true"}, "--nproc-per-node is given twice"},
      {{"-n", "2", ""}, "the program's name is empty"},
      {{"-n", "2", "--grace", "-1", "true"}, "--grace -1 is not a number of seconds"},
      {{"-n", "2", "--grace", "nan", "true"}, "--grace nan is not a number of seconds"},
      {{"-n", "2", "--master-port", "65536", "true"}, "--master-port 65536 is out of range"},
      {{"-n", "2", "--nnodes", "3", "--node-rank", "5", "--master-addr", "127.0.0.1", "true"},
       "--node-rank 5 is out of range: 0..2"},
      {{"-n", "2", "--node-rank", "1", "true"}, "--node-rank 1 is out of range: 0..0"},
      {{"-n", "2", "--nnodes", "3", "--master-addr", "127.0.0.1", "true"},
       "needs --node-rank, 0..2"},
      {{"-n", "2", "--nnodes", "3", "--node-rank", "1", "true"}, "needs --master-addr"},
      {{"-n", "2", "--nnodes", "3:2", "true"},
       "--nnodes 3:2: the least number of nodes comes first"},
      {{"-n", "2", "--nnodes", "0:2", "true"}, "--nnodes 0 is out of range"},
      {{"-n", "2", "--nnodes", "1:", "true"}, "--nnodes  is not a whole number"},
      {{"-n", "2", "--nnodes", "1:4", "true"}, "--nnodes 4 needs --node-rank"},
      {{"-n", "2", "--rdzv-id", std::string(256, 'x'), "true"},
       "--rdzv-id has more than 255 characters"},
      {{"-n", "2", "--on-failure", "panic", "true"},
       "--on-failure panic is none of stop, shrink, restart"},
      {{"-n", "2", "--on-failure", "shrink", "--max-restarts", "1", "true"},
       "--max-restarts 1 needs --on-failure restart"},
      {{"-n", "2", "--on-failure", "restart", "--keep-going", "true"},
       "--keep-going means --on-failure shrink, so it excludes restart"},
      {{"-n", "2", "--max-restarts", "-1", "true"}, "--max-restarts -1 is out of range"},
      {{"-n", "2", "--nnodes", "2", "--standalone", "true"}, "--standalone is one node"},
      {{"-n", "60000", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "true"},
       "at most 65536 ranks"},
      {{"-n", "2", "-x", "=1", "true"}, "-x =1 names no variable"},
      {{"-n", "2", "-x", "COLLS_RANK=1", "true"}, "-x COLLS_RANK: colls-run sets it itself"},
      {{"-n", "2", "-x", "COLLS_SECRET_FILE=x", "true"}, "-x COLLS_SECRET_FILE: colls-run sets"},
      {{"-n", "2", "-x", "COLLS_TERMINAL=1", "true"}, "-x COLLS_TERMINAL: colls-run sets it"},
      {{"-n", "2", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1", "true"},
       "--nnodes 2 needs a secret that is equal on all nodes: set COLLS_SECRET_FILE"},
  };
  for (const auto& [line, says] : all) {
    run it(line, {.environment = {"COLLS_SECRET", "COLLS_SECRET_FILE"}});
    CHECK(it.wait(5) == 2);
    CHECK(it.out() == "");
    CAPTURE(it.err());
    CHECK(contains(it.err(), says));
    CHECK(lines_of(it.err()).size() == 2);
    CHECK(lines_of(it.err()).back() == "colls-run: try colls-run --help");
  }
}

TEST_CASE("--help is help, on standard output") {
  run it({"--help"});
  CHECK(it.wait() == 0);
  CHECK(it.err() == "");
  for (const char* word :
       {"Usage: colls-run -n N", "--nnodes", "--node-rank", "--master-addr", "--master-port",
        "--grace", "--keep-going", "--on-failure", "--max-restarts", "COLLS_SECRET_FILE="}) {
    CHECK(contains(it.out(), word));
  }
  for (const std::string& line : lines_of(it.out())) CHECK(line.size() <= 110);
}

TEST_CASE("nodes and processes per node multiply") {
  const file secret("a secret for a test\n", 0600);
  run it({"--nnodes", "3", "--nproc-per-node", "8", "--node-rank", "0", "--master-addr",
          "127.0.0.1", "--master-port", "20113", "env"},
         {.environment = {"COLLS_SECRET", "COLLS_SECRET_FILE=" + secret.path}});
  CHECK(it.shows("COLLS_WORLD_SIZE=24", 8));
  CHECK(value_of(it.out(), 7, "COLLS_NNODES") == "3");
  CHECK(value_of(it.out(), 7, "COLLS_STORE") == "tcp://127.0.0.1:20113");
  CHECK(value_of(it.out(), 7, "COLLS_SECRET") == "a secret for a test");
  CHECK(value_of(it.out(), 7, "COLLS_SECRET_FILE") == "(not set)");
}

TEST_CASE("colls-run refuses a secret that its ranks would refuse") {
  const strings line = {"--nnodes",      "2",         "-n",  "1", "--node-rank", "0",
                        "--master-addr", "127.0.0.1", "true"};
  const file open("a secret for a test", 0640);
  run it(line, {.environment = {"COLLS_SECRET", "COLLS_SECRET_FILE=" + open.path}});
  CHECK(it.wait() == 1);
  CHECK(contains(it.err(), open.path + " can be read by others: chmod 600 it"));
  const file empty("\n", 0600);
  run blank(line, {.environment = {"COLLS_SECRET", "COLLS_SECRET_FILE=" + empty.path}});
  CHECK(blank.wait() == 1);
  CHECK(contains(blank.err(), "is empty"));
  run missing(line, {.environment = {"COLLS_SECRET", "COLLS_SECRET_FILE=/nowhere/secret"}});
  CHECK(missing.wait() == 1);
  CHECK(contains(missing.err(), "/nowhere/secret: No such file"));
  const file good("a secret for a test", 0600);
  run both(line, {.environment = {"COLLS_SECRET=one", "COLLS_SECRET_FILE=" + good.path}});
  CHECK(both.wait() == 1);
  CHECK(contains(both.err(), "COLLS_SECRET and COLLS_SECRET_FILE are both set: keep one"));
  const file endless(std::string(1024, 'x'), 0600);
  run too_long(line, {.environment = {"COLLS_SECRET", "COLLS_SECRET_FILE=" + endless.path}});
  CHECK(too_long.wait() == 1);
  CHECK(contains(too_long.err(), endless.path + " is too long"));
}

TEST_CASE("a port that is in use, and an address of another host, are reported") {
  run first(shell(1, "echo up; sleep 100", {"--master-port", "20112"}));
  REQUIRE(first.shows("up"));
  run second(shell(1, "true", {"--master-port", "20112"}));
  CHECK(second.wait() == 1);
  CHECK(contains(second.err(), "127.0.0.1 port 20112 is in use: choose another --master-port"));
  run elsewhere(shell(1, "true", {"--master-addr", "192.0.2.1"}));
  CHECK(elsewhere.wait() == 1);
  CHECK(contains(elsewhere.err(), "192.0.2.1 is no address of this node"));
  run six(shell(1, "echo $COLLS_STORE", {"--master-addr", "::1"}));
  CHECK(six.wait() == 0);
  CHECK(six.out().starts_with("[0] tcp://[::1]:"));
}
