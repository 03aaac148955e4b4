// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls-run starts all ranks again after a failure, on one node and on several.

#include "launcher.hpp"

#include <colls/bootstrap/launcher_environment.hpp>

#include "../../tools/colls_run/rendezvous.hpp"

#include <colls/coroutine/sync_wait.hpp>
#include <colls/coroutine/when_all.hpp>

#include <cstdio>
#include <set>

using namespace launcher_test;

namespace {

/// A script that says which start it belongs to. It fails in the first `failing` ones, on `rank`.
std::string fails_at_first(int failing, int rank) {
  return "echo start $COLLS_RESTART_COUNT of $COLLS_MAX_RESTARTS size $COLLS_WORLD_SIZE;"
         "[ $COLLS_RANK = " +
         std::to_string(rank) + " ] && [ $COLLS_RESTART_COUNT -lt " + std::to_string(failing) +
         " ] && exit 3; [ $COLLS_RESTART_COUNT -lt " + std::to_string(failing) +
         " ] && exec sleep 1000; exit 0";
}

/// Returns the names of the job that the launcher says, one for each start.
std::set<std::string> jobs_of(const run& it) {
  std::set<std::string> found;
  for (const std::string& line : lines_of(it.err())) {
    const auto job = line.find(" ranks, job ");
    if (line.starts_with("colls-run: start ") && job != line.npos) found.insert(line.substr(job));
  }
  return found;
}

int count(const std::string& text, const std::string& part) {
  int seen = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++seen;
  return seen;
}

std::string port(int which) { return std::to_string(30000 + ::getpid() % 200 * 10 + which); }

/// A file that is removed at the end at the latest.
struct file {
  std::string path = "/tmp/colls-restarts-" + std::to_string(::getpid());
  file() { std::ofstream(path) << "run\n"; }
  file(const file&) = delete;
  ~file() { remove(); }
  void remove() const { std::filesystem::remove(path); }
};

/// The command line of one of several nodes, with one rank on each.
strings node(int rank, const std::string& nodes, const std::string& at, const std::string& script,
             strings options = {}) {
  options.insert(options.end(),
                 {"--nnodes", nodes, "--node-rank", std::to_string(rank), "--master-addr",
                  "127.0.0.1", "--master-port", at, "--grace", "0"});
  return shell(1, script, std::move(options));
}

const setting with_secret = {
    .environment = {"COLLS_SECRET=a secret for these tests", "COLLS_SECRET_FILE"}};

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

TEST_CASE("a failure on one of two nodes starts the ranks of both again") {
  for (const int failing : {0, 1}) {
    CAPTURE(failing);
    const std::string at = port(failing);
    const auto start = [&](int rank) {
      return node(rank, "2", at, fails_at_first(2, failing), {"--max-restarts", "2"});
    };
    run zero(start(0), with_secret);
    run one(start(1), with_secret);
    CHECK(zero.wait() == 0);
    CHECK(one.wait() == 0);
    for (run* each : {&zero, &one}) {
      CAPTURE(each->err());
      for (const char* said : {"start 0 of 2 size 2", "start 1 of 2 size 2", "start 2 of 2 size 2"})
        CHECK(count(each->out(), said) == 1);
    }
    CHECK(jobs_of(zero).size() == 3);
  }
}

TEST_CASE("when the restarts are used up, the launchers of all nodes end") {
  const auto start = [&](int rank) {
    return node(rank, "2", port(2), fails_at_first(9, 1), {"--max-restarts", "1"});
  };
  run zero(start(0), with_secret);
  run one(start(1), with_secret);
  CHECK(zero.wait() == 1);
  CHECK(one.wait() == 3);
  CHECK(count(one.out(), "start ") == 2);
}

TEST_CASE("a node whose ranks have ended well starts again with the others") {
  const std::string script =
      "echo start $COLLS_RESTART_COUNT; [ $COLLS_RANK = 1 ] && exit 0; sleep 0.3;"
      "exit $((1 - COLLS_RESTART_COUNT))";
  const auto start = [&](int rank) {
    return node(rank, "2", port(3), script, {"--max-restarts", "1"});
  };
  run zero(start(0), with_secret);
  run one(start(1), with_secret);
  CHECK(zero.wait() == 0);
  CHECK(one.wait() == 0);
  CHECK(one.shows("start 1"));
}

TEST_CASE("a rank that joins, and ends by the first failure" * doctest::skip()) {
  const colls::config cfg = colls::environment();
  boost::asio::io_context io;
  const auto driver = colls::engine::get(io.get_executor());
  std::printf("start %d size %d\n", cfg.restarts, cfg.size);
  std::fflush(stdout);
  if (cfg.restarts > 0) std::_Exit(0);
  colls::hello me;
  me.purpose = colls::connection_purpose::store;
  me.job = colls::detail::hash_of(colls::detail::restarted_job(cfg.job.str(), cfg.restarts));
  me.rank = cfg.rank;
  me.world = cfg.size;
  colls::secret shared(cfg.secret.str());
  struct : colls::failure_listener {
    void rank_failed(int, const colls::reported_failure&) override { std::_Exit(9); }
  } listener;
  auto dialling =
      colls::dial_store(*driver, colls::detail::parse_address(cfg.address.str()), {}, me, shared,
                        driver->now() + 20 * colls::seconds, 20 * colls::seconds);
  const auto store = colls::sync_wait(*driver, dialling);
  store->listen_for_failures(&listener);
  std::printf("has joined\n");
  std::fflush(stdout);
  auto pause = driver->sleep_until(driver->now() + 100 * colls::seconds);
  colls::sync_wait(*driver, pause);
}

TEST_CASE("a node whose launcher was killed takes part in the next start when it comes back") {
  const auto start = [&](int rank) {
    strings words = node(rank, "2", port(4), "", {"--max-restarts", "3"});
    words.resize(words.size() - 3);  // without the shell
    words.insert(words.end(), {std::filesystem::read_symlink("/proc/self/exe"), "--no-skip",
                               "-tc=a rank that joins*"});
    return words;
  };
  run zero(start(0), with_secret);
  run one(start(1), with_secret);
  REQUIRE(zero.shows("has joined"));
  REQUIRE(one.shows("has joined"));
  one.signal(SIGKILL);
  CHECK(zero.shows("rank 1, on another node, failed"));
  run again(start(1), with_secret);
  CHECK(zero.wait() == 0);
  CHECK(again.wait() == 0);
  CHECK(zero.shows("start 1 size 2"));
  CHECK(again.shows("start 1 size 2"));
}

TEST_CASE("a node that comes while ranks run waits for the next start (with COLLS_TEST_FULL)") {
  if (std::getenv("COLLS_TEST_FULL") == nullptr) {
    MESSAGE("skipped: takes 30 s, set COLLS_TEST_FULL");
    return;
  }
  const file go;
  const auto start = [&](int rank) {
    return node(rank, "1:2", port(8),
                "echo start $COLLS_RESTART_COUNT size $COLLS_WORLD_SIZE;"
                "[ $COLLS_WORLD_SIZE = 2 ] && exit 0;"
                "while [ -e " +
                    go.path + " ]; do sleep 0.1; done; exit 3",
                {"--max-restarts", "3"});
  };
  run zero(start(0), with_secret);
  REQUIRE(zero.shows("start 0 size 1", 1, 40));
  run one(start(1), with_secret);
  CHECK(one.shows("the job runs without this node, which waits for its next start"));
  go.remove();
  CHECK(zero.wait() == 0);
  CHECK(one.wait() == 0);
  CHECK(zero.shows("start 1 size 2"));
  CHECK(one.shows("start 1 size 2"));
}

TEST_CASE("a node that node 0 never answers ends with the reason") {
  setting impatient = with_secret;
  impatient.environment.push_back("COLLS_JOIN_TIMEOUT=1");
  run one(node(1, "2", port(5), "exit 0", {"--max-restarts", "1"}), impatient);
  CHECK(one.wait(10) == 1);
  CHECK(contains(one.err(), "node 0 cannot be reached at 127.0.0.1 port " + port(5)));
  run zero(node(0, "3", port(6), "exit 0", {"--max-restarts", "1"}), impatient);
  CHECK(zero.wait(10) == 1);
  CHECK(contains(zero.err(), "1 of 3 nodes is here, missing: node 1, 2 after 1 s"));
  setting stranger = with_secret;
  stranger.environment.push_back("COLLS_SECRET=another");
  run host(node(0, "2", port(7), "exit 0", {"--max-restarts", "1"}), with_secret);
  run wrong(node(1, "2", port(7), "exit 0", {"--max-restarts", "1"}), stranger);
  CHECK(wrong.wait(10) == 1);
  CHECK(contains(wrong.err(), "secret"));
}

TEST_CASE("a range of nodes starts with fewer when no other one comes") {
  boost::asio::io_context io;
  const auto driver = colls::engine::get(io.get_executor());
  launcher::options opts[3];
  for (int rank = 0; rank < 3; ++rank) {
    opts[rank].local_size = opts[rank].min_nodes = 1;
    opts[rank].nodes = 4;
    opts[rank].node_rank = rank == 2 ? 3 : rank;
  }
  launcher::world shared;
  shared.secret = "a secret";
  shared.job = "a job";
  colls::listener listener;
  REQUIRE(!listener.listen({boost::asio::ip::make_address("127.0.0.1"), 0}));
  shared.store = "tcp://127.0.0.1:" + std::to_string(listener.local().port());
  const auto soon = 300 * colls::milliseconds;
  launcher::rendezvous zero(*driver, opts[0], shared, 5 * colls::seconds, soon);
  launcher::rendezvous one(*driver, opts[1], shared, 5 * colls::seconds, soon);
  launcher::rendezvous three(*driver, opts[2], shared, 5 * colls::seconds, soon);
  std::vector<launcher::start_decision> decided(3);
  const auto keep = [](colls::task<launcher::start_decision> deciding,
                       launcher::start_decision& result) -> colls::task<> {
    result = co_await deciding;
  };
  std::vector<colls::task<>> all;
  all.push_back(keep(zero.host(listener, 5), decided[0]));
  all.push_back(keep(one.attend(), decided[1]));
  all.push_back(keep(three.attend(), decided[2]));
  colls::when_all together(std::move(all));
  colls::sync_wait(*driver, together);
  for (const launcher::start_decision& each : decided) {
    CHECK(each.restarts == 5);
    CHECK(each.nodes == std::vector<int>{0, 1, 3});
  }
}

TEST_CASE("a decision that no launcher of colls would send is refused") {
  for (const char* text : {"", "1", "-1 0", "0 1", "0 0 0", "0 0 2 1", "0 0 x", "x 0", "0 0 -1"}) {
    CAPTURE(std::string(text));
    CHECK(!launcher::start_decision::parse(text));
  }
  CHECK(launcher::start_decision::parse("2 0 3")->text() == "2 0 3");
}
