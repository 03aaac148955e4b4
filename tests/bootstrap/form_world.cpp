// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/form_world.hpp>

#include <colls/bootstrap/dial.hpp>

#include "../support/joining.hpp"

#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <thread>

using namespace joining;
using namespace std::chrono_literals;
using colls::config;
using colls::failure;
using colls::hello;
using colls::secret;
using colls::world_info;

namespace {

struct joining_rank {
  config cfg;
  const char* transport = nullptr;
  time_point delay = 0;
  std::optional<world_info> member;
  std::optional<failure> failed;
  time_point took = 0;
};

task<> join(engine& on, joining_rank* joiner) {
  if (joiner->delay > 0) co_await on.sleep_until(on.now() + joiner->delay);
  const time_point began = on.now();
  std::optional<world_info> member;
  co_await keep(colls::form_world(on, joiner->cfg, joiner->transport), &member, &joiner->failed);
  if (member) joiner->member.emplace(std::move(*member));
  joiner->took = on.now() - began;
}

struct test_world : bench {
  explicit test_world(int port = free_port())
      : address("tcp://127.0.0.1:" + std::to_string(port)) {}

  config rank(int rank, int size) const {
    config cfg{.rank = rank, .size = size, .address = address};
    cfg.join_timeout = 20s;
    return cfg;
  }
  void join_all(std::vector<joining_rank>& all) {
    std::vector<task<>> work;
    for (joining_rank& joiner : all) work.push_back(join(on, &joiner));
    run_all(std::move(work));
  }
  /// A world whose ranks are all configured correctly.
  std::vector<joining_rank> world(int size) {
    std::vector<joining_rank> all(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) all[static_cast<std::size_t>(r)].cfg = rank(r, size);
    return all;
  }
  void leave(std::vector<joining_rank>& all) {
    std::vector<task<>> work;
    for (joining_rank& joiner : all) {
      if (joiner.member) work.push_back(colls::leave(*joiner.member, in(5 * seconds)));
    }
    run_all(std::move(work));
  }
  std::string address;
};

void check_world(test_world& at, std::vector<joining_rank>& all) {
  const auto size = static_cast<int>(all.size());
  for (int r = 0; r < size; ++r) {
    joining_rank& joiner = all[static_cast<std::size_t>(r)];
    if (joiner.failed) FAIL_CHECK("rank " << r << ": " << joiner.failed->detail);
    REQUIRE(joiner.member);
    CHECK(joiner.member->rank == r);
    CHECK(joiner.member->size == size);
    CHECK(joiner.member->peer_listener.is_open());
    CHECK(joiner.member->node_of.size() == all.size());
  }
  // Every rank knows where every rank listens: on loopback only.
  for (joining_rank& joiner : all) {
    for (int peer = 0; peer < size; ++peer) {
      const endpoint where = at.run(joiner.member->address_of(peer));
      CHECK(where == all[static_cast<std::size_t>(peer)].member->peer_listener.local());
      CHECK(where.address().is_loopback());
    }
  }
}

}  // namespace

TEST_CASE("ranks form a world, whichever rank comes first") {
  for (const int size : {2, 3, 5, 8}) {
    test_world at;
    auto all = at.world(size);
    for (int r = 0; r < size; ++r) {
      all[static_cast<std::size_t>(r)].delay = (size - r) % 3 * 30 * milliseconds;
    }
    at.join_all(all);
    check_world(at, all);
    for (int r = 0; r < size; ++r) {
      const world_info& member = *all[static_cast<std::size_t>(r)].member;
      CHECK(member.local_rank == r);
      CHECK(member.local_size == size);
      CHECK(member.nodes == 1);
      CHECK((member.server != nullptr) == (r == 0));
    }
    at.leave(all);
  }
}

TEST_CASE("an application's io_context::run() drives joining, and returns once all have left") {
  test_world at;
  auto all = at.world(3);
  const auto join_and_leave = [](engine& on, joining_rank* joiner) -> task<> {
    co_await join(on, joiner);
    if (!joiner->member) co_return;
    co_await colls::leave(*joiner->member, on.now() + 5 * seconds);
    joiner->member.reset();
    joiner->took = -1;
  };
  {
    colls::task_group work(at.on);
    for (joining_rank& joiner : all) work.start(join_and_leave(at.on, &joiner));
    at.io.run_for(20s);
  }
  CHECK(at.io.stopped());
  for (const joining_rank& joiner : all) CHECK(joiner.took == -1);
}

TEST_CASE("a world of one opens nothing") {
  bench at;
  const config alone = config::single();
  const world_info member = at.run(colls::form_world(at.on, alone));
  CHECK(member.size == 1);
  CHECK(member.kv_store == nullptr);
  CHECK(!member.peer_listener.is_open());
  CHECK(member.node_of == std::vector<int>{0});
  config zero;
  zero.rank = 0;
  zero.size = 1;
  CHECK(at.run(colls::form_world(at.on, zero)).size == 1);
}

TEST_CASE("a config may be written where it is awaited") {
  bench at;
  const auto alone = [](engine& on, int* sizes) -> task<> {
    const world_info one = co_await colls::form_world(
        on, config{.rank = 0, .size = 1, .address = "tcp://a-name-of-more-than-sixteen-bytes:1"});
    const world_info two =
        co_await colls::form_world(on, {.rank = 0, .size = 1, .job = "a job", .timeout = 5s});
    *sizes = one.size + two.size;
    CHECK(one.cfg.address == "tcp://a-name-of-more-than-sixteen-bytes:1");
    CHECK(two.cfg.timeout.count() == 5 * seconds);
    CHECK(two.cfg.join_timeout == config{}.join_timeout);
  };
  int sizes = 0;
  at.run(alone(at.on, &sizes));
  CHECK(sizes == 2);
}

TEST_CASE("IPv6, names, a secret, a job") {
  test_world at;
  const int port = free_port();
  SUBCASE("[::1]") { at.address = "tcp://[::1]:" + std::to_string(port); }
  SUBCASE("localhost") { at.address = "tcp://localhost:" + std::to_string(port); }
  auto all = at.world(3);
  for (joining_rank& joiner : all) {
    joiner.cfg.secret = "a secret";
    joiner.cfg.job = "a job";
  }
  at.join_all(all);
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("the node map follows hosts, not the numbers of launchers") {
  test_world at;
  auto all = at.world(6);
  const int node[] = {0, 0, 1, 1, 1, 0};
  const int local[] = {2, 0, 0, 1, 2, 1};
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].cfg.node = node[r];
    all[r].cfg.nodes = 2;
    all[r].cfg.local_rank = local[r];
    all[r].cfg.local_size = 3;
  }
  at.join_all(all);
  check_world(at, all);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const world_info& member = *all[r].member;
    CHECK(member.node_of == std::vector<int>(6, 0));
    CHECK(member.node == 0);
    CHECK(member.nodes == 1);
    CHECK(member.local_size == 6);
    CHECK(member.local_rank == static_cast<int>(r));
  }
  at.leave(all);
}

TEST_CASE("ranks are on one host if they share one boot of a machine and one network") {
  using colls::detail::rank_info;
  rank_info here = rank_info::of_this_process();
  CHECK(here.network != 0);
  here.address = loopback(5);
  const auto read = rank_info::parse(here.text());
  REQUIRE(read);
  CHECK(read->host_id() == here.host_id());
  const auto other = [&](auto change) {
    rank_info there = here;
    change(there);
    return there.host_id();
  };
  CHECK(other([](rank_info& info) { info.host = "of-a-container"; }) == here.host_id());
  CHECK(other([](rank_info& info) { info.boot = "another"; }) != here.host_id());
  CHECK(other([](rank_info& info) { ++info.network; }) != here.host_id());
  // Where the system reports no boot id or no network, the host name tells hosts from each other.
  for (const bool has_boot : {false, true}) {
    here = rank_info::of_this_process();
    if (has_boot) {
      here.network = 0;
    } else {
      here.boot = "-";
    }
    CHECK(other([](rank_info& info) { info.host = "another"; }) != here.host_id());
    CHECK(other([](rank_info&) {}) == here.host_id());
  }
}

TEST_CASE("nodes and addresses that rank 0 publishes are parsed as written, or not at all") {
  world_info written;
  written.size = 3;
  written.node_of = {0, 1, 2};
  written.machine_of = {0, 0, 1};
  written.cores_of = {4, 0};
  world_info parsed;
  parsed.size = 3;
  REQUIRE(colls::detail::parse_world_info(colls::detail::world_info_text(written), parsed));
  CHECK(parsed.node_of == written.node_of);
  CHECK(parsed.machine_of == written.machine_of);
  CHECK(parsed.cores_of == written.cores_of);
  CHECK(parsed.address_book.empty());
  written.address_book = {
      loopback(1), {boost::asio::ip::make_address("fd77::1"), 65535}, loopback(29500)};
  REQUIRE(colls::detail::parse_world_info(colls::detail::world_info_text(written), parsed));
  CHECK(parsed.node_of == written.node_of);
  CHECK(parsed.address_book == written.address_book);
  for (const char* nonsense :
       {"", "0 0 2\n0 0 2\n", "0 0 2\n0 0 2\n0 0 2\n0 0 2\n", "0 0 2\n-1 0 2\n0 0 2\n",
        "0 0 2\n0 0 2\n2 0 2\n", "0 0 2\n0 0 -2\n0 0 2\n", "0 0\n0 0\n0 0\n",
        "0 0 2\n0 0 2\n0 0 x\n", "0 0 2\n1 -1 2\n0 0 2\n", "0 0 2\n1 2 2\n0 0 2\n",
        "0 0 2\n1 1 2\n0 1 2\n", "0 0 2\n0 0 2\n0 0 2 127.0.0.1 5\n",
        "0 0 2 127.0.0.1\n0 0 2\n0 0 2\n", "0 0 2 a.b 1\n0 0 2 a.b 1\n0 0 2 a.b 1\n",
        "0 0 2 ::1 0\n0 0 2 ::1 5\n0 0 2 ::1 5\n", "0 0 2 ::1 5\n0 0 2 ::1 65536\n0 0 2 ::1 5\n"}) {
    CAPTURE(nonsense);
    CHECK(!colls::detail::parse_world_info(nonsense, parsed));
  }
}

TEST_CASE("ranks know how many cores they may use together, wherever each is bound") {
  using colls::detail::core_set;
  const core_set all = core_set::of_this_thread();
  char text[core_set::max_digits + 1];
  all.write(text);
  core_set read;
  REQUIRE(core_set::read(text, read));
  CHECK(read.count() == all.count());
  CHECK(core_set::read("0", read));
  CHECK(read.count() == 0);
  CHECK(core_set::read("80f", read));
  CHECK(read.count() == 5);
  CHECK(!core_set::read("8g", read));
  CHECK(!core_set::read(std::string(core_set::max_digits + 1, '1').c_str(), read));

  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  std::vector<int> usable;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &before)) usable.push_back(core);
  }
  if (usable.size() < 2) {
    MESSAGE("skipped: one core");
    return;
  }
  for (const bool separate : {false, true}) {
    CAPTURE(separate);
    auto ranks = test_world().world(3);
    std::vector<int> core_counts(3);
    std::vector<std::thread> bound;
    for (std::size_t r = 0; r < 3; ++r) {
      bound.emplace_back([&, r] {
        cpu_set_t mine;
        CPU_ZERO(&mine);
        CPU_SET(usable[separate && r == 2 ? 1 : 0], &mine);
        ::sched_setaffinity(0, sizeof mine, &mine);
        bench here;
        here.run(join(here.on, &ranks[r]));
        if (!ranks[r].member) return;
        core_counts[r] = ranks[r].member->cores();
        CHECK(ranks[r].member->min_node_cores() == core_counts[r]);
        here.run(colls::leave(*ranks[r].member, here.in(5 * seconds)));
        ranks[r].member.reset();
      });
    }
    for (std::thread& each : bound) each.join();
    CHECK(core_counts == std::vector<int>(3, separate ? 2 : 1));
  }
}

TEST_CASE("ranks on several hosts know the smallest number of cores of a host") {
  colls::world_info all;
  CHECK(all.min_node_cores() == 0);
  all.node_of = {0, 1, 1, 2};
  all.machine_of = {0, 1, 2};
  all.cores_of = {16, 2, 8};
  CHECK(all.min_node_cores() == 2);
  all.cores_of = {16, 2, 0};
  CHECK(all.min_node_cores() == 0);
  // The cores of hosts without a rank of the world do not count.
  all.node_of = {0, 2};
  all.cores_of = {16, 2, 8};
  CHECK(all.min_node_cores() == 8);
}

TEST_CASE("ranks of several hosts on one machine share its cores") {
  colls::world_info all;
  all.size = 5;
  all.rank = 3;
  all.node_of = {0, 0, 1, 1, 2};
  all.machine_of = {0, 0, 1};
  all.cores_of = {3, 1};
  all.compute_local_ranks();
  CHECK(all.node == 1);
  CHECK(all.local_rank == 1);
  CHECK(all.local_size == 2);
  CHECK(all.ranks_on_machine == 4);
  CHECK(all.cores() == 3);
  CHECK(all.is_oversubscribed());
  // Four ranks share three cores: a host with two of these ranks has fewer than two cores. The
  // third host has one core for its only rank.
  CHECK(all.min_node_cores() == 1);
  all.cores_of = {4, 2};
  CHECK(!all.is_oversubscribed());
  CHECK(all.min_node_cores() == 2);

  all.rank = 4;
  all.cores_of = {3, 1};
  all.compute_local_ranks();
  CHECK(all.ranks_on_machine == 1);
  CHECK(all.cores() == 1);
  CHECK(!all.is_oversubscribed());

  // One rank a host, as in containers: the ranks take turns on the core; each counts it as one.
  all.size = 2;
  all.rank = 1;
  all.node_of = {0, 1};
  all.machine_of = {0, 0};
  all.cores_of = {1};
  all.compute_local_ranks();
  CHECK(all.local_size == 1);
  CHECK(all.is_oversubscribed());
  CHECK(all.min_node_cores() == 1);
}

TEST_CASE("impossible local ranks of a launcher are ignored") {
  test_world at;
  auto all = at.world(2);
  for (joining_rank& joiner : all) {
    joiner.cfg.local_rank = 0;
    joiner.cfg.local_size = 1;
  }
  at.join_all(all);
  check_world(at, all);
  CHECK(all[1].member->local_rank == 1);
  CHECK(all[1].member->local_size == 2);
  at.leave(all);
}

TEST_CASE("ranks form a world through a file, which is gone afterwards") {
  char folder[] = "/tmp/colls-test-meet-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/store";
  test_world at;
  at.address = "file://" + path;
  auto all = at.world(3);
  SUBCASE("rank 0 first") {}
  SUBCASE("rank 0 last") { all[0].delay = 100 * milliseconds; }
  SUBCASE("a launcher's own file") {
    at.address = "file://" + path + ".d/store";
    for (joining_rank& joiner : all) {
      joiner.cfg.address = at.address;
      joiner.cfg.own_file = true;
    }
  }
  at.join_all(all);
  check_world(at, all);
  for (const joining_rank& joiner : all)
    CHECK(joiner.member->key.text() == all[0].member->key.text());
  CHECK(all[0].member->key.text().size() == 64);
  CHECK(::access(path.c_str(), F_OK) != 0);
  CHECK(::access((path + ".d").c_str(), F_OK) != 0);
  at.leave(all);
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("file://: a file that an earlier start has left does not stop the next one") {
  char folder[] = "/tmp/colls-test-meet-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/store";
  std::ofstream(path) << "left by a rank that was killed";
  REQUIRE(::chmod(path.c_str(), 0600) == 0);
  for (const int restarts : {0, 1}) {
    CAPTURE(restarts);
    test_world at;
    at.address = "file://" + path;
    auto all = at.world(2);
    for (joining_rank& joiner : all) {
      joiner.cfg.restarts = restarts;
      joiner.cfg.join_timeout = restarts == 0 ? 500ms : 20s;
    }
    at.join_all(all);
    for (const joining_rank& joiner : all) CHECK(joiner.failed.has_value() == (restarts == 0));
    if (restarts > 0) at.leave(all);
  }
  CHECK(::unlink(path.c_str()) == 0);
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("file://: a rank that does not come is named, and the file is gone afterwards") {
  char folder[] = "/tmp/colls-test-meet-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  test_world at;
  at.address = "file://" + std::string(folder) + "/store";
  auto all = at.world(3);
  all.pop_back();
  for (joining_rank& joiner : all) joiner.cfg.join_timeout = 500ms;
  at.join_all(all);
  for (const joining_rank& joiner : all) {
    REQUIRE(joiner.failed);
    CHECK(joiner.failed->code == errc::join_timeout);
  }
  CHECK(contains(all[0].failed->detail, "waiting for rank 2 of 3"));
  CHECK(contains(all[0].failed->detail, folder));
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("ranks that do not come are named on every rank, within the deadline") {
  test_world at;
  auto all = at.world(8);
  all.erase(all.begin() + 5);
  all.erase(all.begin() + 3);
  for (joining_rank& joiner : all) joiner.cfg.join_timeout = 700ms;
  at.join_all(all);
  for (const joining_rank& joiner : all) {
    REQUIRE(joiner.failed);
    CHECK(joiner.failed->code == errc::join_timeout);
    CHECK(contains(joiner.failed->detail, "waiting for ranks 3, 5 of 8"));
    CHECK(contains(joiner.failed->detail, at.address));
    CHECK(joiner.took < 5 * seconds);
  }
}

TEST_CASE("a rank of an earlier start of the job is kept out") {
  test_world at;
  auto all = at.world(2);
  all[0].cfg.restarts = 2;
  all[1].cfg.restarts = 1;
  for (joining_rank& joiner : all) joiner.cfg.join_timeout = 500ms;
  at.join_all(all);
  for (const joining_rank& joiner : all) REQUIRE(joiner.failed);
  CHECK(all[0].failed->code == errc::join_timeout);
  CHECK(contains(all[1].failed->detail, "belongs to another job"));
}

TEST_CASE("a rank with a shorter timeout than the others ends the wait of all") {
  test_world at;
  auto all = at.world(3);
  all.pop_back();
  all[1].cfg.join_timeout = 400ms;
  at.join_all(all);
  for (const joining_rank& joiner : all) {
    REQUIRE(joiner.failed);
    CHECK(joiner.failed->code == errc::join_timeout);
    CHECK(contains(joiner.failed->detail, "waiting for rank 2 of 3"));
    CHECK(joiner.took < 10 * seconds);
  }
}

TEST_CASE("without rank 0 the others say where they looked") {
  test_world at;
  auto all = at.world(3);
  all.erase(all.begin());
  for (joining_rank& joiner : all) joiner.cfg.join_timeout = 500ms;
  at.join_all(all);
  for (const joining_rank& joiner : all) {
    REQUIRE(joiner.failed);
    CHECK(joiner.failed->code == errc::unreachable);
    CHECK(contains(joiner.failed->detail, at.address.substr(6)));
    CHECK(contains(joiner.failed->detail, "rank " + std::to_string(joiner.cfg.rank) + " of 3"));
    CHECK(contains(joiner.failed->detail, "Connection refused"));
    CHECK(joiner.took < 5 * seconds);
  }
}

TEST_CASE("a name that does not exist, and an address of another host") {
  test_world at;
  auto all = at.world(2);
  for (joining_rank& joiner : all) {
    joiner.cfg.address = "tcp://no-such-host.invalid:29500";
    joiner.cfg.join_timeout = 500ms;
  }
  at.join_all(all);
  for (const joining_rank& joiner : all) {
    REQUIRE(joiner.failed);
    CHECK(joiner.failed->code == errc::resolve_failed);
    CHECK(contains(joiner.failed->detail, "no-such-host.invalid"));
  }
  std::vector<joining_rank> rank0(1);
  rank0[0].cfg = at.rank(0, 2);
  rank0[0].cfg.address = "tcp://192.0.2.77:29500";
  rank0[0].cfg.secret = "s";
  at.join_all(rank0);
  REQUIRE(rank0[0].failed);
  CHECK(rank0[0].failed->code == errc::join_failed);
  CHECK(contains(rank0[0].failed->detail, "192.0.2.77:29500"));
  CHECK(contains(rank0[0].failed->detail, "MASTER_ADDR"));
}

TEST_CASE("a port that another program has") {
  test_world at;
  colls::listener other;
  REQUIRE(!other.listen(loopback()));
  std::vector<joining_rank> rank0(1);
  rank0[0].cfg = at.rank(0, 2);
  rank0[0].cfg.address = "tcp://127.0.0.1:" + std::to_string(other.local().port());
  at.join_all(rank0);
  REQUIRE(rank0[0].failed);
  CHECK(rank0[0].failed->code == errc::address_in_use);
  CHECK(contains(rank0[0].failed->detail, rank0[0].cfg.address.str().substr(6)));
}

TEST_CASE("if the launcher keeps the port, the ranks probe the same ports in the same order") {
  test_world at;
  // Two of the ports are taken: one by a server of another protocol, one by another job.
  colls::listener nonsense;
  REQUIRE(!nonsense.listen(loopback()));
  test_world other_job;
  auto others = other_job.world(2);
  for (joining_rank& joiner : others) joiner.cfg.job = "other";
  other_job.join_all(others);
  check_world(other_job, others);
  const int other_port = others[0].member->server->local().port();
  const colls::port_list ports{nonsense.local().port(), other_port, free_port()};
  auto all = at.world(3);
  for (joining_rank& joiner : all) {
    joiner.cfg.ports = ports;
    joiner.cfg.job = "mine";
  }
  const auto answer = [](engine& on, colls::listener& acceptor, const bool* over) -> task<> {
    while (!*over) {
      if (auto socket = acceptor.accept()) {
        colls::stream link(on, std::move(socket));
        co_await say(link,
                     "220 mail.example.org ESMTP ready, say something nice to me at once\r\n");
      }
      co_await on.sleep_until(on.now() + 5 * milliseconds);
    }
  };
  bool over = false;
  colls::task_group background(at.on);
  colls::task_group other_tasks(other_job.on);
  background.start(answer(at.on, nonsense, &over));
  // The other job's server answers only while its engine runs.
  const auto run_other = [](engine& on, engine& other, const bool* done) -> task<> {
    while (!*done) {
      other.poll();
      other.idle(1);
      co_await on.sleep_until(on.now() + milliseconds);
    }
  };
  const auto join_world = [](test_world& here, std::vector<joining_rank>& ranks,
                             bool* done) -> task<> {
    std::vector<task<>> work;
    for (joining_rank& joiner : ranks) work.push_back(join(here.on, &joiner));
    colls::when_all together(std::move(work));
    co_await together;
    *done = true;
  };
  std::vector<task<>> work;
  work.push_back(join_world(at, all, &over));
  work.push_back(run_other(at.on, other_job.on, &over));
  at.run_all(std::move(work));
  check_world(at, all);
  CHECK(all[0].member->server->local().port() == all[0].cfg.ports[2]);
  at.leave(all);
  other_job.leave(others);
}

TEST_CASE("a wrong secret fails on its rank, and the other ranks go on") {
  test_world at;
  auto all = at.world(3);
  for (joining_rank& joiner : all) joiner.cfg.secret = "right";
  joining_rank wrong;
  wrong.cfg = at.rank(2, 3);
  wrong.cfg.secret = "wrong";
  all[2].delay = 400 * milliseconds;
  all.push_back(std::move(wrong));
  at.join_all(all);
  REQUIRE(all[3].failed);
  CHECK(all[3].failed->code == errc::auth_failed);
  CHECK(contains(all[3].failed->detail, at.address.substr(6)));
  CHECK(all[3].took < 5 * seconds);
  all.pop_back();
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("two processes with one rank: the second is refused, the first unharmed") {
  test_world at;
  auto all = at.world(3);
  joining_rank twin;
  twin.cfg = at.rank(1, 3);
  twin.delay = 100 * milliseconds;
  all[2].delay = 500 * milliseconds;
  all.push_back(std::move(twin));
  at.join_all(all);
  REQUIRE(all[3].failed);
  CHECK(all[3].failed->code == errc::rank_taken);
  CHECK(contains(all[3].failed->detail, "rank 1"));
  CHECK(contains(all[3].failed->detail, at.address.substr(6)));
  all.pop_back();
  check_world(at, all);

  // The same once the world is complete, and once that rank has left.
  std::vector<joining_rank> late(1);
  late[0].cfg = at.rank(1, 3);
  at.join_all(late);
  REQUIRE(late[0].failed);
  CHECK(late[0].failed->code == errc::rank_taken);
  at.run(colls::leave(*all[1].member, at.in(2 * seconds)));
  all[1].member.reset();
  std::vector<joining_rank> later(1);
  later[0].cfg = at.rank(1, 3);
  at.join_all(later);
  REQUIRE(later[0].failed);
  CHECK(later[0].failed->code == errc::world_complete);
  at.leave(all);
}

TEST_CASE("two processes that are rank 0: the second finds the port taken") {
  test_world at;
  auto all = at.world(2);
  joining_rank twin;
  twin.cfg = at.rank(0, 2);
  twin.delay = 50 * milliseconds;
  all[1].delay = 100 * milliseconds;
  all.push_back(std::move(twin));
  at.join_all(all);
  REQUIRE(all[2].failed);
  CHECK(all[2].failed->code == errc::address_in_use);
  all.pop_back();
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("ranks that disagree on the size of the world") {
  test_world at;
  auto all = at.world(2);
  all[1].cfg.size = 4;
  all[0].cfg.join_timeout = 2s;
  at.join_all(all);
  REQUIRE(all[1].failed);
  CHECK(all[1].failed->code == errc::join_failed);
  CHECK(contains(all[1].failed->detail, "has 2 ranks"));
  REQUIRE(all[0].failed);
  CHECK(all[0].failed->code == errc::join_timeout);
}

TEST_CASE("if ranks were told different transports, the error of every rank names both") {
  const char* const of_rank[][3] = {
      {"tcp", "tcp", "shm"}, {"hybrid", "tcp", ""}, {"", "hybrid", "shm"}, {"shm", "", "shm"}};
  const char* const messages[] = {"rank 0 was told to use tcp and rank 2 shm",
                                  "rank 0 was told to use hybrid and rank 1 tcp",
                                  "rank 0 was told to use hybrid and rank 2 shm",
                                  "rank 0 was told to use shm and rank 1 hybrid"};
  for (std::size_t i = 0; i < std::size(messages); ++i) {
    test_world at;
    auto all = at.world(3);
    for (std::size_t r = 0; r < 3; ++r) all[r].cfg.transport = of_rank[i][r];
    at.join_all(all);
    for (const joining_rank& joiner : all) {
      REQUIRE(joiner.failed);
      CHECK(joiner.failed->code == errc::join_failed);
      CHECK(contains(joiner.failed->detail, messages[i]));
      CHECK(contains(joiner.failed->detail, "COLLS_TRANSPORT"));
      CHECK(joiner.took < 5 * seconds);
    }
  }
  test_world at;
  auto all = at.world(2);
  all[1].cfg.transport = "hybrid";  // the default, which rank 0 uses
  at.join_all(all);
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("ranks join only if their own transports have one name") {
  const char* const of_rank[][2] = {{"mine", nullptr}, {nullptr, "mine"}, {"mine", "yours"}};
  const char* const messages[] = {"to use mine/hybrid and rank 1 hybrid",
                                  "to use hybrid and rank 1 mine/hybrid",
                                  "to use mine/hybrid and rank 1 yours/hybrid"};
  for (std::size_t i = 0; i < std::size(messages); ++i) {
    test_world at;
    auto all = at.world(2);
    for (std::size_t r = 0; r < 2; ++r) all[r].transport = of_rank[i][r];
    at.join_all(all);
    for (const joining_rank& joiner : all) {
      REQUIRE(joiner.failed);
      CHECK(joiner.failed->code == errc::join_failed);
      CHECK(contains(joiner.failed->detail, messages[i]));
      CHECK(joiner.took < 5 * seconds);
    }
  }
  const std::string longest(colls::detail::max_transport_name, 'x');
  test_world at;
  auto all = at.world(2);
  for (joining_rank& joiner : all) joiner.transport = longest.c_str();
  at.join_all(all);
  check_world(at, all);
  at.leave(all);
  CHECK(colls::detail::is_transport_name(longest));
  for (const std::string& name : {std::string(), longest + "x", std::string("a b"),
                                  std::string("tcp"), std::string("hybrid")}) {
    CHECK_FALSE(colls::detail::is_transport_name(name));
  }
}

/// Passes `own` to all ranks. Keeps what the other ranks have passed, or the failure.
task<> exchange(world_info& info, std::string own, std::optional<std::vector<std::string>>* all,
                std::optional<failure>* failed) {
  auto exchanging = info.exchange(std::move(own));
  co_await keep(std::move(exchanging), all, failed);
}

TEST_CASE("ranks that have joined exchange texts") {
  for (const int size : {1, 2, 5}) {
    test_world at;
    auto all = at.world(size);
    at.join_all(all);
    const auto ranks = static_cast<std::size_t>(size);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::string> sent;
      for (std::size_t r = 0; r < ranks; ++r) {
        const std::size_t length =
            r == 0 ? 0 : colls::max_exchanged_size / (r + ranks * (round == 1));
        sent.push_back(std::string(length, static_cast<char>('a' + r)) + std::string(r % 2, '\0'));
        sent.back().resize(std::min(sent.back().size(), colls::max_exchanged_size));
      }
      std::vector<std::optional<std::vector<std::string>>> got(ranks);
      std::vector<std::optional<failure>> failed(ranks);
      std::vector<task<>> work;
      for (std::size_t r = 0; r < ranks; ++r) {
        work.push_back(exchange(*all[r].member, sent[r], &got[r], &failed[r]));
      }
      at.run_all(std::move(work));
      for (std::size_t r = 0; r < ranks; ++r) {
        REQUIRE(got[r]);
        CHECK(*got[r] == sent);
      }
    }
    at.leave(all);
  }
}

TEST_CASE("a world of one exchanges with itself, and no texts pass once a transport is made") {
  test_world at;
  world_info alone = at.run(colls::form_world(at.on, at.rank(0, 1)));
  CHECK(at.run(alone.exchange("text")) == std::vector<std::string>{"text"});
  std::optional<std::vector<std::string>> got;
  std::optional<failure> failed;
  at.run(exchange(alone, std::string(colls::max_exchanged_size + 1, 'x'), &got, &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::invalid_argument);
  auto all = at.world(2);
  at.join_all(all);
  all[0].member->pass_texts = nullptr;
  at.run(exchange(*all[0].member, "text", &got, &failed));
  CHECK(failed->code == errc::invalid_argument);
  CHECK(contains(failed->detail, "while a transport is made"));
  at.leave(all);
}

TEST_CASE("texts that are no exchange's are refused, and a copy of exchange goes on counting") {
  test_world at;
  auto all = at.world(2);
  at.join_all(all);
  const auto exchange_both = [&](std::vector<std::optional<failure>>& failed) {
    std::vector<std::optional<std::vector<std::string>>> got(2);
    std::vector<task<>> work;
    for (std::size_t r = 0; r < 2; ++r) {
      work.push_back(exchange(*all[r].member, "text", &got[r], &failed[r]));
    }
    at.run_all(std::move(work));
    return got;
  };
  const auto copy = all[1].member->pass_texts;
  std::vector<std::optional<failure>> failed(2);
  CHECK(*exchange_both(failed)[1] == std::vector<std::string>{"text", "text"});
  all[1].member->pass_texts = copy;
  CHECK(*exchange_both(failed)[1] == std::vector<std::string>{"text", "text"});
  // Rank 1 finds what another process has published in the place of rank 0.
  int number = 2;
  const std::string two = colls::detail::join_strings({"text", "text"});
  const std::string long_text(colls::max_exchanged_size + 1, 'x');
  for (const std::string& forged :
       {std::string(), std::string("text"), two.substr(0, two.size() / 2), two + "x",
        two.substr(0, two.size() - 1), two + std::string(4, '\0'),
        std::string("\xff\xff\xff\xff", 4) + two,
        colls::detail::join_strings({"text", long_text})}) {
    CAPTURE(forged);
    at.run(all[0].member->kv_store->set("colls/exchange/" + std::to_string(number++), forged));
    std::vector<std::optional<std::vector<std::string>>> got(1);
    std::vector<std::optional<failure>> why(1);
    at.run(exchange(*all[1].member, "text", &got[0], &why[0]));
    REQUIRE(why[0]);
    CHECK(why[0]->code == errc::protocol_error);
  }
  at.leave(all);
}

TEST_CASE("rank 0 publishes no texts if one of them is too long") {
  test_world at;
  auto all = at.world(3);
  at.join_all(all);
  const std::string long_text(colls::max_exchanged_size + 1, 'x');
  at.run(all[1].member->kv_store->set("colls/exchange/0/1", long_text));
  std::optional<std::vector<std::string>> got;
  std::optional<failure> failed;
  at.run(exchange(*all[0].member, "text", &got, &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::protocol_error);
  CHECK(contains(failed->detail, "rank 1 has passed too long a text"));
  CHECK(at.run(all[1].member->kv_store->check(std::vector<std::string>{"colls/exchange/0"})) ==
        "0");
  at.leave(all);
}

TEST_CASE("an exchange ends if a rank fails, is late, or has too long a text") {
  for (const char* const what : {"fails", "is late", "says too much"}) {
    CAPTURE(what);
    test_world at;
    auto all = at.world(3);
    for (joining_rank& joiner : all) joiner.cfg.join_timeout = 2s;
    at.join_all(all);
    std::vector<std::optional<std::vector<std::string>>> got(3);
    std::vector<std::optional<failure>> failed(3);
    const colls::time_point began = at.on.now();
    std::vector<task<>> work;
    for (std::size_t r = 0; r < 3; ++r) {
      const bool is_odd = r == 2;
      if (is_odd && what == std::string("fails")) {
        failure reason(errc::no_device, "it has no such device");
        work.push_back(colls::abandon(*all[r].member, reason, began + seconds));
      } else if (is_odd && what == std::string("says too much")) {
        std::string long_text(colls::max_exchanged_size + 1, 'x');
        work.push_back(exchange(*all[r].member, std::move(long_text), &got[r], &failed[r]));
      } else if (!is_odd) {
        work.push_back(exchange(*all[r].member, "short", &got[r], &failed[r]));
      }
    }
    at.run_all(std::move(work));
    for (std::size_t r = 0; r < 2; ++r) {
      REQUIRE(failed[r]);
      if (what == std::string("fails")) {
        CHECK(failed[r]->code == errc::no_device);
        CHECK(failed[r]->observer == 2);
        CHECK(contains(failed[r]->detail, "no such device"));
        CHECK(at.on.now() - began < seconds);
      } else {
        CHECK(failed[r]->code == errc::timeout);
        if (r == 0) CHECK(failed[r]->culprit == 2);
      }
    }
    if (what == std::string("says too much")) CHECK(failed[2]->code == errc::invalid_argument);
    at.leave(all);
  }
}

TEST_CASE("a rank that dies while the others wait is announced at once") {
  test_world at;
  auto all = at.world(4);
  all.pop_back();
  // Plays rank 3, which is accepted and then dies.
  const auto die = [](engine& on, std::string address) -> task<> {
    co_await on.sleep_until(on.now() + 200 * milliseconds);
    const auto place = colls::detail::parse_address(address);
    const auto link = co_await connect(on, loopback(place.port));
    hello mine;
    mine.purpose = colls::connection_purpose::store;
    mine.rank = 3;
    mine.world = 4;
    mine.job = colls::detail::hash_of("");
    const secret key = co_await colls::detail::fetch_local_secret(on, loopback(place.port), false,
                                                                  on.now() + 5 * seconds);
    co_await colls::prove(*link, mine, key);
    co_await colls::await_verdict(*link, mine);
    std::string first;
    colls::detail::append_frame(first, {.op = colls::detail::store_frame::opcode::enter}, {}, {});
    co_await say(*link, first);
    co_await on.sleep_until(on.now() + 100 * milliseconds);
  };
  std::vector<task<>> work;
  for (joining_rank& joiner : all) work.push_back(join(at.on, &joiner));
  work.push_back(die(at.on, at.address));
  at.run_all(std::move(work));
  for (const joining_rank& joiner : all) {
    REQUIRE(joiner.failed);
    CHECK(joiner.failed->code == errc::peer_failed);
    CHECK(joiner.failed->culprit == 3);
    CHECK(joiner.took < 5 * seconds);
  }
}

TEST_CASE("a store that a launcher serves: no rank binds its port") {
  test_world at;
  hello launcher;
  launcher.purpose = colls::connection_purpose::store;
  launcher.world = 3;
  launcher.job = colls::detail::hash_of("job");
  colls::store_server server(at.on, launcher, secret("s"));
  REQUIRE(!server.listen(loopback()));
  auto all = at.world(3);
  for (joining_rank& joiner : all) {
    joiner.cfg.address = "tcp://" + colls::detail::text_of(server.local());
    joiner.cfg.served = true;
    joiner.cfg.secret = "s";
    joiner.cfg.job = "job";
  }
  SUBCASE("all come") {
    at.join_all(all);
    check_world(at, all);
    CHECK(all[0].member->server == nullptr);
    CHECK(server.present() == 3);
    at.leave(all);
    at.turn(20 * milliseconds);
    CHECK(server.present() == 0);
  }
  SUBCASE("rank 0 does not come") {
    all.erase(all.begin());
    for (joining_rank& joiner : all) joiner.cfg.join_timeout = 400ms;
    at.join_all(all);
    for (const joining_rank& joiner : all) {
      REQUIRE(joiner.failed);
      CHECK(joiner.failed->code == errc::join_timeout);
      CHECK(contains(joiner.failed->detail, "waiting for rank 0 of 3"));
    }
  }
  SUBCASE("the launcher sees a rank die before it came") {
    all.pop_back();
    const auto tell = [](engine& on, colls::store_server& from) -> task<> {
      co_await on.sleep_until(on.now() + 150 * milliseconds);
      from.announce_failure(2, "pid 4711 was killed by signal 9");
    };
    std::vector<task<>> work;
    for (joining_rank& joiner : all) work.push_back(join(at.on, &joiner));
    work.push_back(tell(at.on, server));
    at.run_all(std::move(work));
    for (const joining_rank& joiner : all) {
      REQUIRE(joiner.failed);
      CHECK(joiner.failed->code == errc::peer_failed);
      CHECK(joiner.failed->culprit == 2);
      CHECK(contains(joiner.failed->detail, "signal 9"));
      CHECK(joiner.took < 3 * seconds);
    }
  }
}

TEST_CASE("a socket that listens already is used as it is") {
  test_world at;
  colls::listener given;
  REQUIRE(!given.listen(loopback()));
  auto all = at.world(2);
  for (joining_rank& joiner : all) {
    joiner.cfg.address = "tcp://" + colls::detail::text_of(given.local());
  }
  all[0].cfg.store_fd = ::dup(given.descriptor());
  at.join_all(all);
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("a rank without a secret listens on loopback only, and no rank on all addresses") {
  test_world at;
  const auto outside =
      colls::detail::source_address_for({boost::asio::ip::make_address("198.51.100.1"), 9});
  std::vector<joining_rank> rank0(1);
  rank0[0].cfg = at.rank(0, 2);
  rank0[0].cfg.address = "tcp://0.0.0.0:" + std::to_string(free_port());
  rank0[0].cfg.secret = "s";
  at.join_all(rank0);
  REQUIRE(rank0[0].failed);
  CHECK(rank0[0].failed->code == errc::insecure_bind);
  if (!outside) {
    MESSAGE("skipped: this host has no address but loopback");
    return;
  }
  const std::string place = outside->to_string() + ":" + std::to_string(free_port());
  auto all = at.world(2);
  for (joining_rank& joiner : all) {
    joiner.cfg.address = "tcp://" + place;
    joiner.cfg.join_timeout = 2s;
  }
  SUBCASE("refused") {
    all.pop_back();
    at.join_all(all);
    REQUIRE(all[0].failed);
    CHECK(all[0].failed->code == errc::insecure_bind);
    CHECK(contains(all[0].failed->detail, place));
  }
  SUBCASE("with a secret") {
    for (joining_rank& joiner : all) joiner.cfg.secret = "s";
    at.join_all(all);
    REQUIRE(all[1].member);
    CHECK(all[1].member->peer_listener.local().address() == *outside);
    at.leave(all);
  }
  SUBCASE("or where the user takes the risk") {
    for (joining_rank& joiner : all) joiner.cfg.insecure = true;
    at.join_all(all);
    REQUIRE(all[1].member);
    at.leave(all);
  }
}

TEST_CASE("an invalid rank, a missing address and an invalid timeout are errors at once") {
  bench at;
  const auto fails = [&](const config& cfg, const char* part) {
    std::optional<world_info> member;
    std::optional<failure> failed;
    at.run(keep(colls::form_world(at.on, cfg), &member, &failed));
    REQUIRE(failed);
    CHECK(failed->code == errc::join_failed);
    CHECK_MESSAGE(contains(failed->detail, part), failed->detail);
  };
  fails({.rank = 3, .size = 3, .address = "tcp://127.0.0.1:1"}, "rank 3 of 3");
  fails({.rank = -1, .size = 3, .address = "tcp://127.0.0.1:1"}, "rank -1 of 3");
  fails({.rank = 1, .address = "tcp://127.0.0.1:1"}, "rank 1 of -1");
  fails({.rank = 0, .size = 3}, "MASTER_ADDR");
  fails({.rank = 0, .size = 3, .address = "127.0.0.1:1"}, "tcp://host:port");
  fails({.rank = 0, .size = 3, .address = "file:///nowhere/at/all"}, "directory");
  fails({.rank = 0, .size = 1, .timeout = 0s}, "config::timeout is no time");
  fails({.rank = 0, .size = 1, .join_timeout = -1s}, "config::join_timeout is no time");
}

TEST_CASE("a congestion control that the system refuses is an error before any rank is dialled") {
  bench at;
  colls::listener acceptor;
  REQUIRE(!acceptor.listen(loopback()));
  const std::string address = "tcp://127.0.0.1:" + std::to_string(acceptor.local().port());
  for (const char* name : {"no-such-one", "of-15-bytes-all"}) {
    std::optional<world_info> member;
    std::optional<failure> failed;
    at.run(keep(
        colls::form_world(
            at.on,
            config{
                .rank = 1, .size = 2, .address = address, .join_timeout = 2s, .congestion = name}),
        &member, &failed));
    REQUIRE(failed);
    CAPTURE(failed->detail);
    CHECK(failed->code == errc::invalid_argument);
    CHECK(contains(failed->detail, std::string("'") + name + "'"));
    CHECK(contains(failed->detail, "No such file or directory"));
    CHECK(contains(failed->detail, "there are "));
    CHECK(contains(failed->detail, "reno"));
  }
  CHECK(!acceptor.accept());
}

TEST_CASE("a rank that dials a peer proves the secret and learns if the connection stays") {
  test_world at;
  auto all = at.world(2);
  for (joining_rank& joiner : all) joiner.cfg.secret = "s";
  at.join_all(all);
  check_world(at, all);
  struct answering : colls::authenticating_listener::handler {
    explicit answering(engine& on) : tasks(on) {}
    void handle_peer(std::unique_ptr<colls::stream> guest, const hello& joiner) override {
      seen.push_back(joiner.rank);
      guests.push_back(std::move(guest));
      tasks.start(colls::give_verdict(*guests.back(), answer));
    }
    colls::verdict answer = colls::verdict::accepted;
    std::vector<int> seen;
    std::vector<std::unique_ptr<colls::stream>> guests;
    colls::task_group tasks;
  } host(at.on);
  world_info& accepting = *all[0].member;
  world_info& dialling = *all[1].member;
  colls::authenticating_listener acceptor(at.on, accepting.peer_listener,
                                          accepting.make_hello(colls::connection_purpose::peer),
                                          accepting.key, host);
  const endpoint where = at.run(dialling.address_of(0));
  for (const bool wanted : {true, false}) {
    host.answer = wanted ? colls::verdict::accepted : colls::verdict::duplicate;
    const auto link = at.run(connect(at.on, where));
    CHECK(at.run(dialling.authenticate(*link, 0)) == wanted);
  }
  CHECK(host.seen == std::vector<int>{1, 1});
  const auto link = at.run(connect(at.on, where));
  std::optional<bool> stays;
  std::optional<failure> failed;
  at.run(keep(dialling.authenticate(*link, 1), &stays, &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::protocol_error);
  at.leave(all);
}

TEST_CASE("strangers crowd the store's port while the world forms") {
  test_world at;
  auto all = at.world(4);
  for (joining_rank& joiner : all) joiner.cfg.secret = "s";
  for (std::size_t r = 1; r < all.size(); ++r) {
    all[r].delay = static_cast<time_point>(r) * 150 * milliseconds;
  }
  const auto crowd = [](engine& on, std::string address, const bool* over) -> task<> {
    const endpoint where = loopback(colls::detail::parse_address(address).port);
    std::vector<std::unique_ptr<colls::stream>> silent;
    for (int i = 0; !*over && i < 3000; ++i) {
      auto link = std::make_unique<colls::stream>(on);
      link->set_deadline(on.now() + seconds);
      const auto done = co_await colls::detail::attempt(link->connect(where));
      if (!done) {
        co_await on.sleep_until(on.now() + 10 * milliseconds);
        continue;
      }
      if (i % 4 == 1) co_await say(*link, "GET / HTTP/1.0\r\n\r\n" + std::string(80, 'g'));
      if (i % 4 == 2) co_await say(*link, text(colls::write_hello(hello{.rank = 1, .world = 4})));
      if (i % 4 == 3) silent.push_back(std::move(link));
      if (silent.size() > 200) silent.erase(silent.begin());
    }
  };
  const auto join_world = [](test_world& here, std::vector<joining_rank>& ranks,
                             bool* done) -> task<> {
    std::vector<task<>> work;
    for (joining_rank& joiner : ranks) work.push_back(join(here.on, &joiner));
    colls::when_all together(std::move(work));
    co_await together;
    *done = true;
  };
  bool over = false;
  std::vector<task<>> work;
  work.push_back(join_world(at, all, &over));
  work.push_back(crowd(at.on, at.address, &over));
  at.run_all(std::move(work));
  check_world(at, all);
  CHECK(all[0].member->server->rejected_count() > 100);
  at.leave(all);
}
