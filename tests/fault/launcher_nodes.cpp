// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The store that colls-run serves, its reports of failures, and worlds of several nodes (on one
// host).

#include "launcher.hpp"

#include <colls/bootstrap/dial.hpp>
#include <colls/coroutine/sync_wait.hpp>

#include <cstdio>

using namespace launcher_test;

namespace {

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Prints the failures that the store reports. A rank that waits for one then ends by an error, as
// in a collective.
struct failure_printer : colls::failure_listener {
  void rank_failed(int rank, const colls::reported_failure& report) override {
    std::printf("told: rank %d %s\n", rank, report.reason().detail);
    // After a timeout the late rank may go on, and so do the ranks that learn of it.
    (report.reason().code == colls::errc::timeout ? has_timeout : has_failure) = true;
  }
  colls::task<> wait_for_timeout(colls::engine& driver, colls::time_point limit) {
    while (!has_timeout && driver.now() < limit) {
      co_await driver.sleep_until(driver.now() + 5 * colls::milliseconds);
    }
  }
  colls::task<> wait_for_failure(colls::engine& driver, colls::time_point limit) {
    while (!has_failure && driver.now() < limit) {
      co_await driver.sleep_until(driver.now() + 5 * colls::milliseconds);
    }
    std::fflush(stdout);
  }
  colls::task<> exit_on_failure(colls::engine& driver, colls::time_point limit) {
    co_await wait_for_failure(driver, limit);
    std::_Exit(9);
  }
  bool has_failure = false;
  bool has_timeout = false;
};

/// Creates a symbolic link whose name is the pid of this process, and exits.
void leave_pid_and_exit() {
  const std::string mine = variable("FOLDER") + "/" + std::to_string(::getpid());
  if (::symlink("/", mine.c_str()) != 0) std::_Exit(8);
  std::_Exit(0);
}
/// Waits until the process whose pid is found there has ended.
void wait_for_end_of_that_process() {
  for (pid_t pid = 0; pid == 0 || ::kill(pid, 0) == 0; ::usleep(1000)) {
    for (const auto& found : std::filesystem::directory_iterator(variable("FOLDER"))) {
      pid = std::atoi(found.path().filename().c_str());
    }
  }
}

/// A rank; the variable RANK_<rank> says what it does.
colls::task<> run_rank(colls::engine& driver) {
  colls::hello me;
  me.purpose = colls::connection_purpose::store;
  me.job = colls::detail::hash_of(variable("COLLS_JOB"));
  me.rank = std::atoi(variable("COLLS_RANK").c_str());
  me.world = std::atoi(variable("COLLS_WORLD_SIZE").c_str());
  colls::secret shared(variable("COLLS_SECRET"));
  const std::string does = variable(("RANK_" + std::to_string(me.rank)).c_str());
  if (does == "fail first") std::_Exit(3);
  if (does == "go at once") leave_pid_and_exit();
  const bool is_late = does == "come when rank 1 is gone";
  if (is_late) wait_for_end_of_that_process();
  // It waits as an observer until another rank has come, and never joins itself.
  if (does == "miss") me.rank = -1;
  const colls::time_point soon = driver.now() + 20 * colls::seconds;
  const auto store =
      co_await colls::dial_store(driver, colls::detail::parse_address(variable("COLLS_STORE")), {},
                                 me, shared, soon, 20 * colls::seconds);
  failure_printer failures;
  store->listen_for_failures(&failures);
  std::vector<std::string> all;
  for (int rank = 0; rank < me.world; ++rank) all.push_back("here/" + std::to_string(rank));
  if (does == "miss") {
    const std::string awaited = "here/" + variable("COMES");
    co_await store->get(awaited, soon);
    std::_Exit(0);
  }
  co_await store->set(all[static_cast<std::size_t>(me.rank)], "yes");
  if (is_late) {  // and stops joining after a failure, as a rank does
    co_await failures.wait_for_failure(driver, soon);
    co_await store->leave(soon);
    std::_Exit(9);
  }
  if (does == "hear before all are here") co_await failures.exit_on_failure(driver, soon);
  co_await store->wait(all, soon);
  std::printf("met %d\n", me.world);
  std::fflush(stdout);
  // It gives the launcher of the other node time to connect to the store.
  if (does == "die" && me.world == 4)
    co_await driver.sleep_until(driver.now() + 200 * colls::milliseconds);
  if (does == "blame rank 2") {
    colls::failure late(colls::errc::timeout, "rank 2 is late");
    late.culprit = 2;
    late.communicator = 7;
    co_await store->report_failure(late, soon);
  }
  if (does.ends_with("after the blame")) co_await failures.wait_for_timeout(driver, soon);
  if (does == "exit 3 long after the blame") {
    co_await driver.sleep_until(driver.now() + 6 * colls::seconds);
    std::_Exit(3);
  }
  if (does == "exit 4 after the blame") std::_Exit(4);
  if (does == "die" || does == "die after the blame") ::raise(SIGKILL);
  if (does == "blame rank 2") co_await failures.exit_on_failure(driver, soon);
  if (does == "go, then exit 3") {
    ::close_range(3, ~0U, 0);
    ::usleep(100'000);
  }
  if (does.ends_with("exit 3")) std::_Exit(3);
  if (does == "exit 0") std::_Exit(0);
  if (does == "work") co_await driver.sleep_until(driver.now() + 700 * colls::milliseconds);
  if (does == "hear") co_await failures.exit_on_failure(driver, soon);
  co_await store->leave(soon);
}

// Returns a port below the range from which the system draws ports.
std::string port(int which) { return std::to_string(20000 + ::getpid() % 1000 * 10 + which); }

strings ranks(int n, strings options = {}) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  options.insert(options.end(), {"-n", std::to_string(n), self, "--no-skip", "-tc=a rank"});
  return options;
}

strings node(int rank, int of, int n, const std::string& at, strings options = {}) {
  options.insert(options.end(),
                 {"--nnodes", std::to_string(of), "--node-rank", std::to_string(rank),
                  "--master-addr", "127.0.0.1", "--master-port", at});
  return ranks(n, std::move(options));
}

const setting with_secret = {
    .environment = {"COLLS_SECRET=a secret for these tests", "COLLS_SECRET_FILE"}};

}  // namespace

TEST_CASE("a rank" * doctest::skip()) {
  boost::asio::io_context io;
  const auto driver = colls::engine::get(io.get_executor());
  colls::sync_wait(*driver, run_rank(*driver));
}

TEST_CASE("ranks meet at the launcher's store") {
  run it(ranks(5));
  CHECK(it.wait() == 0);
  CHECK(it.shows("met 5", 5));
  CHECK(it.err() == "");
}

TEST_CASE("a rank that dies is reported to the others at once, and it is the culprit") {
  for (const char* end : {"die", "exit 3"}) {
    run it(ranks(4, {"-x", "RANK_0=hear", "-x", "RANK_1=hear", "-x", std::string("RANK_2=") + end,
                     "-x", "RANK_3=hear"}));
    CHECK(it.wait(4) == (std::string(end) == "die" ? 128 + SIGKILL : 3));
    CHECK(it.shows("told: rank 2 ", 3));
    CHECK(contains(it.err(), "rank 2 failed: "));
  }
}

TEST_CASE("a rank that disconnects without leaving is the first to fail, though it ends last") {
  run it(ranks(4, {"-x", "RANK_0=hear", "-x", "RANK_1=hear", "-x", "RANK_2=go, then exit 3", "-x",
                   "RANK_3=hear"}));
  CHECK(it.wait(4) == 3);
  CHECK(it.shows("told: rank 2 ", 3));
  CHECK(contains(it.err(), "colls-run: rank 2 failed: exit code 3\n"));
}

TEST_CASE("a rank that exits with 0 and has not left the world is the first to fail") {
  run it(ranks(
      4, {"-x", "RANK_0=hear", "-x", "RANK_1=hear", "-x", "RANK_2=exit 0", "-x", "RANK_3=hear"}));
  CHECK(it.wait(4) == 1);
  CHECK(it.shows("told: rank 2 ", 3));
  CHECK(contains(it.err(), "colls-run: rank 2 failed: exit code 0 without leaving the world\n"));
  CHECK(lines_of(it.err()).back() ==
        "colls-run: exit status 1: rank 2 (exit code 0 without leaving the world) was the first to "
        "fail");
}

TEST_CASE("ranks that all exit with 0 and have not left the world have done their work") {
  run it(ranks(3, {"-x", "RANK_0=exit 0", "-x", "RANK_1=exit 0", "-x", "RANK_2=exit 0"}));
  CHECK(it.wait() == 0);
  CHECK(it.err() == "");
}

TEST_CASE("a rank that exits with 0 and never joins is the first to fail") {
  const std::string hear = "=hear before all are here";
  run it(ranks(
      3, {"-x", "RANK_0" + hear, "-x", "RANK_1=miss", "-x", "RANK_2" + hear, "-x", "COMES=0"}));
  CHECK(it.wait(4) == 1);
  CHECK(contains(it.err(), "colls-run: rank 1 failed: exit code 0 without leaving the world\n"));
}

TEST_CASE("a rank that exits with 0 before any other one joins is the first to fail") {
  char name[] = "/tmp/launcher-test-XXXXXX";
  REQUIRE(::mkdtemp(name) != nullptr);
  const std::string late = "=come when rank 1 is gone";
  run it(ranks(3, {"-x", std::string("FOLDER=") + name, "-x", "RANK_0" + late, "-x",
                   "RANK_1=go at once", "-x", "RANK_2" + late}));
  CHECK(it.wait() == 1);
  CHECK(it.shows("told: rank 1 it ended (exit code 0) and had not joined", 2));
  CHECK(contains(it.err(), "colls-run: rank 1 failed: exit code 0 without leaving the world\n"));
  CHECK(!contains(it.err(), "exit code 9"));
  CHECK(lines_of(it.err()).back() ==
        "colls-run: exit status 1: rank 1 (exit code 0 without leaving the world) was the first to "
        "fail");
  std::filesystem::remove_all(name);
}

TEST_CASE("a rank that fails before it reaches the store is reported to the ranks that did") {
  const std::string hear = "=hear before all are here";
  run it(ranks(3, {"-x", "RANK_0" + hear, "-x", "RANK_1=fail first", "-x", "RANK_2" + hear}));
  CHECK(it.wait(4) == 3);
  CHECK(it.shows("told: rank 1 exit code 3", 2));
}

TEST_CASE("a rank that was given up and went on is not the first to fail when another dies") {
  const struct {
    const char* does;
    const char* ends;
    int status;
  } all[] = {{"die after the blame", "killed by SIGKILL", 128 + SIGKILL},
             {"exit 3 long after the blame", "exit code 3", 3}};
  for (const auto& [does, ends, status] : all) {
    CAPTURE(does);
    run it(ranks(4, {"-x", "RANK_0=blame rank 2", "-x", "RANK_1=hear", "-x", "RANK_2=hear", "-x",
                     std::string("RANK_3=") + does}));
    CHECK(it.wait(15) == status);
    CHECK(it.shows("told: rank 2 rank 2 is late", 3));
    CHECK(contains(it.err(), std::string("colls-run: rank 3 failed: ") + ends));
    CHECK(lines_of(it.err()).back() == "colls-run: exit status " + std::to_string(status) +
                                           ": rank 3 (" + ends + ") was the first to fail");
  }
}

TEST_CASE("a rank that was given up is the first to fail, whichever rank ends first by that") {
  // After the report rank 3 ends before rank 2, without leaving.
  run it(ranks(4, {"-x", "RANK_0=blame rank 2", "-x", "RANK_1=hear", "-x", "RANK_2=hear", "-x",
                   "RANK_3=exit 4 after the blame"}));
  CHECK(it.wait(15) == 9);
  CHECK(contains(it.err(), "colls-run: rank 2 failed: exit code 9\n"));
}

TEST_CASE("two nodes are one world, whichever comes first") {
  for (const int first : {0, 1}) {
    run a(node(first, 2, 2, port(1)), with_secret);
    REQUIRE(a.at_least(2));  // its ranks are up
    run b(node(1 - first, 2, 2, port(1)), with_secret);
    CHECK(a.wait() == 0);
    CHECK(b.wait() == 0);
    run& zero = first == 0 ? a : b;
    run& one = first == 0 ? b : a;
    CHECK(contains(zero.out(), "[1] met 4"));
    CHECK(contains(one.out(), "[3] met 4"));
    CHECK(zero.err() == "");
    CHECK(one.err() == "");
  }
}

TEST_CASE("node 0's launcher stays while other nodes work") {
  run zero(node(0, 2, 1, port(2)), with_secret);
  run one(node(1, 2, 1, port(2), {"-x", "RANK_1=work"}), with_secret);
  CHECK(one.wait() == 0);
  CHECK(zero.wait() == 0);
  CHECK(zero.seconds() > 0.7);
  CHECK(one.err() == "");
}

TEST_CASE("a failure on one node is reported on the other") {
  for (const int failing : {0, 1}) {
    const std::string rank = failing == 0 ? "0" : "2";
    const strings options = {"--grace", "5",
                             "-x",      "RANK_" + rank + "=die",
                             "-x",      "RANK_1=hear",
                             "-x",      "RANK_3=hear",
                             "-x",      failing == 0 ? "RANK_2=hear" : "RANK_0=hear"};
    run zero(node(0, 2, 2, port(3), options), with_secret);
    run one(node(1, 2, 2, port(3), options), with_secret);
    run& culprit = failing == 0 ? zero : one;
    run& other = failing == 0 ? one : zero;
    CHECK(culprit.wait(8) == 128 + SIGKILL);
    CHECK(contains(culprit.err(), "rank " + rank + " failed: killed by SIGKILL"));
    // 1 for a rank of another node; 9 if the report comes later than the end of a local rank.
    CHECK((other.wait(8) == 1 || other.wait(8) == 9));
    CHECK(other.shows("told: rank " + rank, 2));
  }
}

TEST_CASE("a rank that exits with 0 and never joins is reported on the other node") {
  for (const int missing : {0, 1}) {
    CAPTURE(missing);
    const std::string miss = std::to_string(missing);
    const std::string other = std::to_string(1 - missing);
    const strings options = {"-x", "RANK_" + miss + "=miss",
                             "-x", "RANK_" + other + "=hear before all are here",
                             "-x", "COMES=" + other};
    run zero(node(0, 2, 1, port(8), options), with_secret);
    run one(node(1, 2, 1, port(8), options), with_secret);
    run& waits = missing == 0 ? one : zero;
    const int status = waits.wait(8);
    CAPTURE(status);
    CAPTURE(waits.err());
    CHECK((status == 1 || status == 9));  // 9 as above
    CHECK(waits.shows("told: rank " + miss + " it ended (exit code 0) and had not joined"));
  }
}

TEST_CASE("a rank that ends well while those of another node work is no failure") {
  // The processes do not use colls, so none waits for it.
  for (const int quick : {0, 1}) {
    CAPTURE(quick);
    const auto script = [&](int node) {
      return shell(
          2, "[ $COLLS_RANK = " + std::to_string(2 * quick) + " ] || { sleep 1; echo finished; }",
          {"--grace", "0", "--nnodes", "2", "--node-rank", std::to_string(node), "--master-addr",
           "127.0.0.1", "--master-port", port(9)});
    };
    run zero(script(0), with_secret);
    run one(script(1), with_secret);
    CHECK(zero.wait() == 0);
    CHECK(one.wait() == 0);
    CHECK(zero.shows("finished", 2 - (quick == 0)));
    CHECK(one.shows("finished", 2 - (quick == 1)));
    CHECK(zero.err() == "");
    CHECK(one.err() == "");
  }
}

TEST_CASE("a failure before the ranks have met ends both nodes") {
  run zero(shell(1, "echo up; exec sleep 1000",
                 {"--grace", "0", "--nnodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1",
                  "--master-port", port(4)}),
           with_secret);
  REQUIRE(zero.shows("up"));
  run one({"--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port",
           port(4), "-n", "1", "/no/such/program"},
          with_secret);
  CHECK(one.wait(8) == 127);
  CHECK(zero.wait(8) == 1);
  CHECK(contains(zero.err(), "rank 1, on another node, failed: could not be started"));
}

TEST_CASE("kill -9 of node 0's launcher ends the other node") {
  run zero(node(0, 2, 1, port(5), {"-x", "RANK_0=work", "-x", "RANK_1=hear", "--grace", "0.2"}),
           with_secret);
  setting with_debug_log = with_secret;
  with_debug_log.environment.push_back("COLLS_LOG=debug");
  run one(shell(1, "echo up; exec sleep 1000",
                {"--grace", "0.2", "--nnodes", "2", "--node-rank", "1", "--master-addr",
                 "127.0.0.1", "--master-port", port(5)}),
          with_debug_log);
  REQUIRE(zero.at_least(1));
  REQUIRE(one.shows("up"));
  REQUIRE(one.shows("this launcher receives failures from the store of node 0"));
  zero.signal(SIGKILL);
  CHECK(zero.all_gone(3));
  CHECK(one.wait(8) == 1);
  CHECK(contains(one.err(), "the launcher of node 0 is gone"));
}

TEST_CASE("kill -9 of another node's launcher is reported on node 0") {
  run zero(node(0, 2, 1, port(6), {"-x", "RANK_0=hear"}), with_secret);
  run one(node(1, 2, 1, port(6), {"-x", "RANK_1=hear"}), with_secret);
  REQUIRE(one.shows("met 2"));
  one.signal(SIGKILL);
  CHECK(one.all_gone(3));
  CHECK(zero.wait(8) == 1);
  CHECK(zero.shows("told: rank 1 "));
}

TEST_CASE("a launcher with another secret is refused, and the job goes on") {
  run zero(node(0, 2, 1, port(7)), with_secret);
  run stranger(node(1, 2, 1, port(7)), {.environment = {"COLLS_SECRET=another"}});
  CHECK(stranger.wait(20) != 0);
  CHECK(contains(stranger.err() + stranger.out(), "secret"));
  run one(node(1, 2, 1, port(7)), with_secret);
  CHECK(one.wait() == 0);
  CHECK(zero.wait() == 0);
}
