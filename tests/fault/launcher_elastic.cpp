// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Launchers of several nodes (on one host): node 0 decides when ranks start, start again and are
// replaced, and other nodes come and go.

#include "launcher.hpp"

#include <memory>

using namespace launcher_test;

namespace {

// Returns a port below the range from which the system draws ports, another one each time.
std::string new_port() {
  static int count = 0;
  return std::to_string(30000 + ::getpid() % 250 * 10 + count++ % 10);
}

/// What each node of a job gets: the options besides its rank, and the program.
struct job {
  strings options;
  strings program;
  std::string port = new_port();
  std::string nodes = "2";

  std::unique_ptr<run> node(int rank) const {
    strings all = options;
    all.insert(all.end(), {"--nnodes", nodes, "--node-rank", std::to_string(rank), "--master-addr",
                           "127.0.0.1", "--master-port", port});
    all.insert(all.end(), program.begin(), program.end());
    return std::make_unique<run>(
        all,
        setting{.environment = {"COLLS_SECRET=a secret for these tests", "COLLS_SECRET_FILE"}});
  }
};

/// The program of examples/12_repair.cpp.
strings repair(int steps, strings more = {}) {
  strings all = {"examples/repair", "--steps", std::to_string(steps), "--pause", "5"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// The last line that the program prints, after `steps` steps on `ranks` ranks at all times.
std::string sum_of(int steps, int ranks) {
  const int sum = steps * (ranks - 1) * ranks / 2 + ranks * steps * (steps - 1) / 2;
  return "the sum of " + std::to_string(steps) + " steps on " + std::to_string(ranks) +
         " ranks is " + std::to_string(sum);
}

/// Kills a process of the node with SIGKILL: that with this local rank, a replacement if it has
/// one.
void kill_rank(const run& node, const std::string& rank) {
  pid_t last = -1;
  for (const pid_t each : node.left()) {
    if (variable_of(each, "COLLS_LOCAL_RANK") == rank) last = std::max(last, each);
  }
  REQUIRE(last > 0);
  ::kill(last, SIGKILL);
}

std::string job_of(const run& it, int start) {
  const auto lines = lines_of(it.err());
  for (const std::string& line : lines) {
    const auto at = line.find(" ranks, job ");
    if (line.starts_with("colls-run: start " + std::to_string(start) + " of ") && at != line.npos)
      return line.substr(at);
  }
  return "";
}

}  // namespace

TEST_CASE("the ranks of all nodes start again after a failure, whichever node comes first") {
  for (const int first : {0, 1}) {
    CAPTURE(first);
    const job it{{"-n", "2", "--max-restarts", "2", "--grace", "0"},
                 {"sh", "-c", fails_at_first(2, 2 * first)}};
    const auto a = it.node(first);
    ::usleep(200'000);
    const auto b = it.node(1 - first);
    CHECK(a->wait() == 0);
    CHECK(b->wait() == 0);
    const run& zero = first == 0 ? *a : *b;
    const run& one = first == 0 ? *b : *a;
    for (const char* start : {"start 0", "start 1", "start 2"}) {
      CHECK(count(zero.out(), std::string("[0] ") + start + " of 2 size 4") == 1);
      CHECK(count(one.out(), std::string("[3] ") + start + " of 2 size 4") == 1);
    }
    for (const int start : {1, 2, 3}) {
      CHECK(job_of(zero, start) != "");
      CHECK(job_of(zero, start) == job_of(one, start));
    }
    CHECK(job_of(zero, 1) != job_of(zero, 2));
    CHECK(zero.left().empty());
    CHECK(one.left().empty());
  }
}

TEST_CASE("a node whose ranks have ended well starts again with the others") {
  const job it{{"-n", "1", "--max-restarts", "1", "--grace", "0"},
               {"sh", "-c",
                "echo start $COLLS_RESTART_COUNT; [ $COLLS_RANK = 0 ] && exit 0; sleep 0.3;"
                "exit $((1 - COLLS_RESTART_COUNT))"}};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  CHECK(zero->wait() == 0);
  CHECK(one->wait() == 0);
  for (const auto* node : {zero.get(), one.get()}) {
    for (const char* start : {"start 0", "start 1"}) CHECK(count(node->out(), start) == 1);
  }
}

TEST_CASE("when the restarts are used up, the last failure is the end on all nodes") {
  const job it{{"-n", "1", "--max-restarts", "1", "--grace", "0"},
               {"sh", "-c", fails_at_first(5, 1)}};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  CHECK(one->wait() == 3);
  CHECK(zero->wait() == 1);
  for (const auto* node : {zero.get(), one.get()}) {
    CHECK(count(node->err(), "colls-run: start ") == 2);
    CHECK(!contains(node->err(), "node 0 is gone"));
  }
}

TEST_CASE("a node whose ranks have ended well reports that those of another have failed") {
  const job it{{"-n", "1", "--max-restarts", "1", "--grace", "0"},
               {"sh", "-c", "[ $COLLS_RANK = 0 ] && exit 0; sleep 0.3; exit 3"}};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  CHECK(zero->wait() == 1);
  CHECK(one->wait() == 3);
  CHECK(contains(zero->err(), "colls-run: ranks of other nodes have failed"));
}

TEST_CASE("what another start would not mend ends the job on all nodes") {
  const job it{{"-n", "1", "--max-restarts", "3", "--grace", "0"},
               {"sh", "-c", "[ $COLLS_NODE_RANK = 0 ] && exec sleep 1000; kill -9 $PPID; sleep 9"}};
  const auto zero = it.node(0);
  const auto one = it.node(1);  // its guard is killed
  CHECK(one->wait() == 1);
  CHECK(zero->wait() == 1);
  CHECK(contains(zero->err(), "colls-run: node 1 has ended the job"));
  CHECK(count(zero->err(), "colls-run: start ") == 1);
}

TEST_CASE("nodes whose options differ are not taken in") {
  const job it{{"-n", "1", "--max-restarts", "3"}, {"sh", "-c", fails_at_first(0, 0)}};
  const auto zero = it.node(0);
  job other = it;
  const auto refused_for = [&](strings options, int rank, const char* reason) {
    other.options = std::move(options);
    const auto node = other.node(rank);
    CHECK(node->wait() == 1);
    CAPTURE(node->err());
    CHECK(
        contains(node->err(), std::string("colls-run: node 0 does not take this node: ") + reason));
  };
  refused_for({"-n", "2", "--max-restarts", "3"}, 1, "--nproc-per-node is 2 there and 1 on node 0");
  refused_for({"-n", "1", "--max-restarts", "4"}, 1, "--max-restarts is 4 there and 3 on node 0");
  refused_for({"-n", "1", "--on-failure", "replace"}, 1,
              "--on-failure is replace there and restart on node 0");
  other.nodes = "1:2";
  refused_for({"-n", "1", "--max-restarts", "3"}, 1, "--nnodes is 1:2 there and 2 on node 0");
  const auto one = it.node(1);
  CHECK(one->wait() == 0);
  CHECK(zero->wait() == 0);
}

TEST_CASE("a launcher that is killed may come again at the next start") {
  const job it{
      {"-n", "1", "--max-restarts", "3", "--grace", "0"},
      {"sh", "-c", "echo up $COLLS_RESTART_COUNT; [ $COLLS_RESTART_COUNT = 1 ] || sleep 1000"}};
  const auto zero = it.node(0);
  auto one = it.node(1);
  REQUIRE(zero->shows("up 0"));
  REQUIRE(one->shows("up 0"));
  one->signal(SIGKILL);
  REQUIRE(zero->shows("the launcher of node 1"));
  one = it.node(1);
  CHECK(one->wait() == 0);
  CHECK(zero->wait() == 0);
  CHECK(one->shows("up 1"));
}

TEST_CASE("ranks of any node are replaced") {
  const job it{{"-n", "2", "--on-failure", "replace", "--max-restarts", "4"}, repair(300)};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  REQUIRE(zero->shows("rank 0 of 4 is at step"));
  kill_rank(*one, "1");
  REQUIRE(zero->shows("in generation 1", 2));
  kill_rank(*zero, "0");
  REQUIRE(zero->shows("in generation 2", 2));
  kill_rank(*zero, "1");
  kill_rank(*one, "0");
  CHECK(zero->wait() == 0);
  CHECK(one->wait() == 0);
  CHECK(contains(zero->out(), sum_of(300, 4)));
  CHECK(contains(one->err(), "colls-run: a replacement for rank 3 starts, 1 of at most 4"));
  CHECK(contains(zero->err(), "colls-run: a replacement for rank 0 starts, 2 of at most 4"));
}

TEST_CASE("the replacements of all nodes are counted together") {
  const job it{{"-n", "1", "--on-failure", "replace", "--max-restarts", "1", "--grace", "0.5"},
               repair(4000)};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  REQUIRE(zero->shows("rank 0 of 2 is at step"));
  kill_rank(*one, "0");
  REQUIRE(zero->shows("in generation 1"));
  kill_rank(*zero, "0");
  CHECK(zero->wait() == 128 + SIGKILL);
  CHECK(one->wait() != 0);
  CHECK(
      contains(zero->err(),
               "no replacement for rank 0: 1 have been started, as many as --max-restarts allows"));
  CHECK(contains(one->err(), "colls-run: node 0 has ended the job"));
}

TEST_CASE("a node is killed and comes again: the job goes on without it, then with it") {
  const job it{
      {"-n", "2", "--on-failure", "replace"}, repair(500, {"--at-least", "2"}), new_port(), "1:2"};
  const auto zero = it.node(0);
  auto one = it.node(1);
  REQUIRE(zero->shows("rank 0 of 4 is at step"));
  one->signal(SIGKILL);
  REQUIRE(zero->shows("rank 0 of 2 is at step"));
  CHECK(zero->shows("colls-run: the launcher of node 1"));
  one = it.node(1);
  REQUIRE(zero->shows("rank 0 of 4 is at step", 2));
  CHECK(zero->shows("colls-run: node 1"));
  kill_rank(*one, "0");  // which is a replacement, and is replaced
  REQUIRE(zero->shows("rank 0 of 4 is at step", 3));
  CHECK(zero->wait() == 0);
  CHECK(one->wait() == 0);
  CHECK(contains(zero->out(), "the sum of 500 steps on 4 ranks"));
  // Its replacements take part as all others do.
  CHECK(contains(one->out(), "rank 3 of 4 is at step"));
}

TEST_CASE("without the launcher of node 0 the others end their ranks, and say so") {
  for (const char* policy : {"restart", "replace"}) {
    CAPTURE(policy);
    const job it{{"-n", "1", "--on-failure", policy, "--grace", "0.5"}, {"sleep", "1000"}};
    const auto zero = it.node(0);
    const auto one = it.node(1);
    REQUIRE(zero->at_least(1));
    REQUIRE(one->at_least(1));
    zero->signal(SIGKILL);
    CHECK(one->wait() == 1);
    CHECK(contains(one->err(), "colls-run: the launcher of node 0 is gone"));
    CHECK(one->left().empty());
  }
}

TEST_CASE("a signal ends this node, and on node 0 the job") {
  const job it{{"-n", "1", "--on-failure", "replace", "--grace", "0.5"},
               repair(4000, {"--at-least", "1"}),
               new_port(),
               "1:2"};
  const auto zero = it.node(0);
  auto one = it.node(1);
  REQUIRE(zero->shows("rank 0 of 2 is at step"));
  one->signal(SIGINT);
  CHECK(one->wait() == 128 + SIGINT);
  REQUIRE(zero->shows("rank 0 of 1 is at step"));
  one = it.node(1);
  REQUIRE(zero->shows("rank 0 of 2 is at step", 2));
  const auto began = clock::now();
  zero->signal(SIGTERM);
  CHECK(zero->wait() == 128 + SIGTERM);
  CHECK(one->wait() == 1);
  CHECK(seconds_since(began) < 5);  // --grace is 0.5
  CHECK(contains(one->err(), "colls-run: node 0 has ended the job"));
  CHECK(one->left().empty());
}

TEST_CASE("a signal ends a launcher that waits for other nodes") {
  const job it{{"-n", "1", "--on-failure", "restart", "--grace", "0"}, {"sleep", "1000"}};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  REQUIRE(zero->at_least(1));
  REQUIRE(one->at_least(1));
  one->signal(SIGKILL);
  REQUIRE(zero->shows("1 of 2 nodes have come; waiting for more"));
  zero->signal(SIGINT);
  CHECK(zero->wait(10) == 128 + SIGINT);
}

TEST_CASE("a range of nodes does not change what happens when ranks of one node end well") {
  const job it{{"-n", "1", "--grace", "0.2"},
               {"sh", "-c", "[ $COLLS_RANK = 0 ] || { sleep 1.5; echo done; }"},
               new_port(),
               "1:2"};
  const auto zero = it.node(0);
  const auto one = it.node(1);
  CHECK(zero->wait() == 0);
  CHECK(one->wait() == 0);
  CHECK(one->out() == "[1] done\n");
}

TEST_CASE("a node that has come later shares the end of the job") {
  const job it{{"-n", "1", "--on-failure", "replace", "--grace", "0.5"},
               {"sh", "-c", "[ -z \"$COLLS_REPLACEMENT\" ] && sleep 1000; exec examples/repair"},
               new_port(),
               "1:2"};
  const auto zero = it.node(0);
  auto one = it.node(1);
  REQUIRE(zero->at_least(1));
  REQUIRE(one->at_least(1));
  one->signal(SIGKILL);
  REQUIRE(zero->shows("colls-run: the launcher of node 1"));
  one = it.node(1);
  REQUIRE(zero->shows("colls-run: node 1"));
  REQUIRE(one->at_least(1));
  kill_rank(*zero, "0");
  CHECK(zero->wait() == 1);  // the rank of the other node was the first to fail
  CHECK(one->wait() == 1);
  for (const auto* node : {zero.get(), one.get()}) {
    CHECK(contains(node->err(), "no rank is left with which the replacements could go on"));
    CHECK(node->left().empty());
  }
}
