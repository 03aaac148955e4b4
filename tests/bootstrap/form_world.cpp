// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/form_world.hpp>

#include <colls/bootstrap/dial.hpp>

#include "../support/joining.hpp"

#include <chrono>
#include <thread>

using namespace joining;
using namespace std::chrono_literals;
using colls::config;
using colls::failure;
using colls::hello;
using colls::membership;
using colls::secret;

namespace {

struct arrival {
  config cfg;
  time_point delay = 0;
  std::optional<membership> member;
  std::optional<failure> failed;
  time_point took = 0;
};

task<> come(engine& on, arrival* who) {
  if (who->delay > 0) co_await on.sleep_until(on.now() + who->delay);
  const time_point began = on.now();
  std::optional<membership> member;
  co_await keep(colls::meet(on, who->cfg), &member, &who->failed);
  if (member) who->member.emplace(std::move(*member));
  who->took = on.now() - began;
}

struct town : bench {
  explicit town(int port = free_port()) : address("tcp://127.0.0.1:" + std::to_string(port)) {}

  config rank(int rank, int size) const {
    config cfg{.rank = rank, .size = size, .address = address};
    cfg.join_timeout = 20s;
    return cfg;
  }
  void meet(std::vector<arrival>& all) {
    std::vector<task<>> work;
    for (arrival& who : all) work.push_back(come(on, &who));
    run_all(std::move(work));
  }
  /// A world whose ranks are all as they should be.
  std::vector<arrival> world(int size) {
    std::vector<arrival> all(static_cast<std::size_t>(size));
    for (int r = 0; r < size; ++r) all[static_cast<std::size_t>(r)].cfg = rank(r, size);
    return all;
  }
  void leave(std::vector<arrival>& all) {
    std::vector<task<>> work;
    for (arrival& who : all) {
      if (who.member) work.push_back(colls::leave(*who.member, in(5 * seconds)));
    }
    run_all(std::move(work));
  }
  std::string address;
};

void check_world(town& at, std::vector<arrival>& all) {
  const auto size = static_cast<int>(all.size());
  for (int r = 0; r < size; ++r) {
    arrival& who = all[static_cast<std::size_t>(r)];
    if (who.failed) FAIL_CHECK("rank " << r << ": " << who.failed->detail);
    REQUIRE(who.member);
    CHECK(who.member->rank == r);
    CHECK(who.member->size == size);
    CHECK(who.member->link_listener.is_open());
    CHECK(who.member->node_of.size() == all.size());
  }
  // Everybody knows where everybody listens, and only what it should be.
  for (arrival& who : all) {
    for (int peer = 0; peer < size; ++peer) {
      const endpoint where = at.run(who.member->address_of(peer));
      CHECK(where == all[static_cast<std::size_t>(peer)].member->link_listener.local());
      CHECK(where.address().is_loopback());
    }
  }
}

}  // namespace

TEST_CASE("ranks meet, whoever comes first") {
  for (const int size : {2, 3, 5, 8}) {
    town at;
    auto all = at.world(size);
    for (int r = 0; r < size; ++r) {
      all[static_cast<std::size_t>(r)].delay = (size - r) % 3 * 30 * milliseconds;
    }
    at.meet(all);
    check_world(at, all);
    for (int r = 0; r < size; ++r) {
      const membership& member = *all[static_cast<std::size_t>(r)].member;
      CHECK(member.local_rank == r);
      CHECK(member.local_size == size);
      CHECK(member.nodes == 1);
      CHECK((member.server != nullptr) == (r == 0));
    }
    at.leave(all);
  }
}

TEST_CASE("an application's io_context::run() drives it, and returns once all have left") {
  town at;
  auto all = at.world(3);
  const auto come_and_go = [](engine& on, arrival* who) -> task<> {
    co_await come(on, who);
    if (!who->member) co_return;
    co_await colls::leave(*who->member, on.now() + 5 * seconds);
    who->member.reset();
    who->took = -1;
  };
  {
    colls::task_group work(at.on);
    for (arrival& who : all) work.start(come_and_go(at.on, &who));
    at.io.run_for(20s);
  }
  CHECK(at.io.stopped());
  for (const arrival& who : all) CHECK(who.took == -1);
}

TEST_CASE("a world of one opens nothing") {
  bench at;
  const config alone = config::single();
  const membership member = at.run(colls::meet(at.on, alone));
  CHECK(member.size == 1);
  CHECK(member.rendezvous == nullptr);
  CHECK(!member.link_listener.is_open());
  CHECK(member.node_of == std::vector<int>{0});
  config zero;
  zero.rank = 0;
  zero.size = 1;
  CHECK(at.run(colls::meet(at.on, zero)).size == 1);
}

TEST_CASE("a config may be written where it is awaited") {
  bench at;
  const auto alone = [](engine& on, int* sizes) -> task<> {
    const membership one = co_await colls::meet(
        on, config{.rank = 0, .size = 1, .address = "tcp://a-name-of-more-than-sixteen-bytes:1"});
    const membership two =
        co_await colls::meet(on, {.rank = 0, .size = 1, .job = "a job", .timeout = 5s});
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
  town at;
  const int port = free_port();
  SUBCASE("[::1]") { at.address = "tcp://[::1]:" + std::to_string(port); }
  SUBCASE("localhost") { at.address = "tcp://localhost:" + std::to_string(port); }
  auto all = at.world(3);
  for (arrival& who : all) {
    who.cfg.secret = "a secret";
    who.cfg.job = "a job";
  }
  at.meet(all);
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("the node map follows hosts, whatever launchers number") {
  town at;
  auto all = at.world(6);
  const int node[] = {0, 0, 1, 1, 1, 0};
  const int local[] = {2, 0, 0, 1, 2, 1};
  for (std::size_t r = 0; r < all.size(); ++r) {
    all[r].cfg.node = node[r];
    all[r].cfg.nodes = 2;
    all[r].cfg.local_rank = local[r];
    all[r].cfg.local_size = 3;
  }
  at.meet(all);
  check_world(at, all);
  for (std::size_t r = 0; r < all.size(); ++r) {
    const membership& member = *all[r].member;
    CHECK(member.node_of == std::vector<int>(6, 0));
    CHECK(member.node == 0);
    CHECK(member.nodes == 1);
    CHECK(member.local_size == 6);
    CHECK(member.local_rank == static_cast<int>(r));
  }
  at.leave(all);
}

TEST_CASE("ranks are of one host if one machine was booted once for them, with one network") {
  using colls::detail::rank_card;
  rank_card here = rank_card::of_this_process();
  CHECK(here.network != 0);
  here.where = loopback(5);
  const auto read = rank_card::parse(here.text());
  REQUIRE(read);
  CHECK(read->place() == here.place());
  const auto other = [&](auto change) {
    rank_card there = here;
    change(there);
    return there.place();
  };
  CHECK(other([](rank_card& card) { card.host = "of-a-container"; }) == here.place());
  CHECK(other([](rank_card& card) { card.boot = "another"; }) != here.place());
  CHECK(other([](rank_card& card) { ++card.network; }) != here.place());
  // What the system does not say the name has to.
  for (const bool has_boot : {false, true}) {
    here = rank_card::of_this_process();
    if (has_boot) {
      here.network = 0;
    } else {
      here.boot = "-";
    }
    CHECK(other([](rank_card& card) { card.host = "another"; }) != here.place());
    CHECK(other([](rank_card&) {}) == here.place());
  }
}

TEST_CASE("what rank 0 tells all of nodes and addresses is read as it was written, or not at all") {
  membership told;
  told.size = 3;
  told.node_of = {0, 1, 2};
  told.machine_of = {0, 0, 1};
  told.cores_of = {4, 0};
  membership heard;
  heard.size = 3;
  REQUIRE(colls::detail::read_membership(colls::detail::membership_text(told), heard));
  CHECK(heard.node_of == told.node_of);
  CHECK(heard.machine_of == told.machine_of);
  CHECK(heard.cores_of == told.cores_of);
  CHECK(heard.book.empty());
  told.book = {loopback(1), {boost::asio::ip::make_address("fd77::1"), 65535}, loopback(29500)};
  REQUIRE(colls::detail::read_membership(colls::detail::membership_text(told), heard));
  CHECK(heard.node_of == told.node_of);
  CHECK(heard.book == told.book);
  for (const char* nonsense :
       {"", "0 0 2\n0 0 2\n", "0 0 2\n0 0 2\n0 0 2\n0 0 2\n", "0 0 2\n-1 0 2\n0 0 2\n",
        "0 0 2\n0 0 2\n2 0 2\n", "0 0 2\n0 0 -2\n0 0 2\n", "0 0\n0 0\n0 0\n",
        "0 0 2\n0 0 2\n0 0 x\n", "0 0 2\n1 -1 2\n0 0 2\n", "0 0 2\n1 2 2\n0 0 2\n",
        "0 0 2\n1 1 2\n0 1 2\n", "0 0 2\n0 0 2\n0 0 2 127.0.0.1 5\n",
        "0 0 2 127.0.0.1\n0 0 2\n0 0 2\n", "0 0 2 a.b 1\n0 0 2 a.b 1\n0 0 2 a.b 1\n",
        "0 0 2 ::1 0\n0 0 2 ::1 5\n0 0 2 ::1 5\n", "0 0 2 ::1 5\n0 0 2 ::1 65536\n0 0 2 ::1 5\n"}) {
    CAPTURE(nonsense);
    CHECK(!colls::detail::read_membership(nonsense, heard));
  }
}

TEST_CASE("ranks know how many cores they may use together, wherever each is bound") {
  using colls::detail::core_set;
  const core_set all = core_set::of_this_thread();
  char text[core_set::longest + 1];
  all.write(text);
  core_set read;
  REQUIRE(core_set::read(text, read));
  CHECK(read.count() == all.count());
  CHECK(core_set::read("0", read));
  CHECK(read.count() == 0);
  CHECK(core_set::read("80f", read));
  CHECK(read.count() == 5);
  CHECK(!core_set::read("8g", read));
  CHECK(!core_set::read(std::string(core_set::longest + 1, '1').c_str(), read));

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
  for (const bool apart : {false, true}) {
    CAPTURE(apart);
    auto ranks = town().world(3);
    std::vector<int> together(3);
    std::vector<std::thread> bound;
    for (std::size_t r = 0; r < 3; ++r) {
      bound.emplace_back([&, r] {
        cpu_set_t mine;
        CPU_ZERO(&mine);
        CPU_SET(usable[apart && r == 2 ? 1 : 0], &mine);
        ::sched_setaffinity(0, sizeof mine, &mine);
        bench here;
        here.run(come(here.on, &ranks[r]));
        if (!ranks[r].member) return;
        together[r] = ranks[r].member->cores();
        CHECK(ranks[r].member->fewest_cores() == together[r]);
        here.run(colls::leave(*ranks[r].member, here.in(5 * seconds)));
        ranks[r].member.reset();
      });
    }
    for (std::thread& each : bound) each.join();
    CHECK(together == std::vector<int>(3, apart ? 2 : 1));
  }
}

TEST_CASE("ranks on several hosts know how many cores the least of these has") {
  colls::membership all;
  CHECK(all.fewest_cores() == 0);
  all.node_of = {0, 1, 1, 2};
  all.machine_of = {0, 1, 2};
  all.cores_of = {16, 2, 8};
  CHECK(all.fewest_cores() == 2);
  all.cores_of = {16, 2, 0};
  CHECK(all.fewest_cores() == 0);
  // A world of some of the ranks has nothing to do with the other hosts.
  all.node_of = {0, 2};
  all.cores_of = {16, 2, 8};
  CHECK(all.fewest_cores() == 8);
}

TEST_CASE("ranks of several hosts on one machine share its cores") {
  colls::membership all;
  all.size = 5;
  all.rank = 3;
  all.node_of = {0, 0, 1, 1, 2};
  all.machine_of = {0, 0, 1};
  all.cores_of = {3, 1};
  all.find_own_place();
  CHECK(all.node == 1);
  CHECK(all.local_rank == 1);
  CHECK(all.local_size == 2);
  CHECK(all.beside == 4);
  CHECK(all.cores() == 3);
  CHECK(all.shares_cores());
  // Four ranks on three cores: a host of two has less than two of them. The third host has one for
  // its only rank.
  CHECK(all.fewest_cores() == 1);
  all.cores_of = {4, 2};
  CHECK(!all.shares_cores());
  CHECK(all.fewest_cores() == 2);

  all.rank = 4;
  all.cores_of = {3, 1};
  all.find_own_place();
  CHECK(all.beside == 1);
  CHECK(all.cores() == 1);
  CHECK(!all.shares_cores());

  // One rank a host, as in containers: each has a core in turn, never less than one.
  all.size = 2;
  all.rank = 1;
  all.node_of = {0, 1};
  all.machine_of = {0, 0};
  all.cores_of = {1};
  all.find_own_place();
  CHECK(all.local_size == 1);
  CHECK(all.shares_cores());
  CHECK(all.fewest_cores() == 1);
}

TEST_CASE("a launcher's local ranks that cannot be are not believed") {
  town at;
  auto all = at.world(2);
  for (arrival& who : all) {
    who.cfg.local_rank = 0;
    who.cfg.local_size = 1;
  }
  at.meet(all);
  check_world(at, all);
  CHECK(all[1].member->local_rank == 1);
  CHECK(all[1].member->local_size == 2);
  at.leave(all);
}

TEST_CASE("ranks meet at a file, which is gone afterwards") {
  char folder[] = "/tmp/colls-test-meet-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const std::string path = std::string(folder) + "/store";
  town at;
  at.address = "file://" + path;
  auto all = at.world(3);
  SUBCASE("rank 0 first") {}
  SUBCASE("rank 0 last") { all[0].delay = 100 * milliseconds; }
  SUBCASE("a launcher's own file") {
    at.address = "file://" + path + ".d/store";
    for (arrival& who : all) {
      who.cfg.address = at.address;
      who.cfg.own_file = true;
    }
  }
  at.meet(all);
  check_world(at, all);
  for (const arrival& who : all) CHECK(who.member->key.text() == all[0].member->key.text());
  CHECK(all[0].member->key.text().size() == 64);
  CHECK(::access(path.c_str(), F_OK) != 0);
  CHECK(::access((path + ".d").c_str(), F_OK) != 0);
  at.leave(all);
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("file://: a rank that does not come is named, and the file is gone afterwards") {
  char folder[] = "/tmp/colls-test-meet-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  town at;
  at.address = "file://" + std::string(folder) + "/store";
  auto all = at.world(3);
  all.pop_back();
  for (arrival& who : all) who.cfg.join_timeout = 500ms;
  at.meet(all);
  for (const arrival& who : all) {
    REQUIRE(who.failed);
    CHECK(who.failed->code == errc::join_timeout);
  }
  CHECK(contains(all[0].failed->detail, "waiting for rank 2 of 3"));
  CHECK(contains(all[0].failed->detail, folder));
  CHECK(::rmdir(folder) == 0);
}

TEST_CASE("ranks that do not come are named on every rank, within the deadline") {
  town at;
  auto all = at.world(8);
  all.erase(all.begin() + 5);
  all.erase(all.begin() + 3);
  for (arrival& who : all) who.cfg.join_timeout = 700ms;
  at.meet(all);
  for (const arrival& who : all) {
    REQUIRE(who.failed);
    CHECK(who.failed->code == errc::join_timeout);
    CHECK(contains(who.failed->detail, "waiting for ranks 3, 5 of 8"));
    CHECK(contains(who.failed->detail, at.address));
    CHECK(who.took < 5 * seconds);
  }
}

TEST_CASE("a rank with less patience than the others ends the wait of all") {
  town at;
  auto all = at.world(3);
  all.pop_back();
  all[1].cfg.join_timeout = 400ms;
  at.meet(all);
  for (const arrival& who : all) {
    REQUIRE(who.failed);
    CHECK(who.failed->code == errc::join_timeout);
    CHECK(contains(who.failed->detail, "waiting for rank 2 of 3"));
    CHECK(who.took < 10 * seconds);
  }
}

TEST_CASE("without rank 0 the others say where they looked") {
  town at;
  auto all = at.world(3);
  all.erase(all.begin());
  for (arrival& who : all) who.cfg.join_timeout = 500ms;
  at.meet(all);
  for (const arrival& who : all) {
    REQUIRE(who.failed);
    CHECK(who.failed->code == errc::unreachable);
    CHECK(contains(who.failed->detail, at.address.substr(6)));
    CHECK(contains(who.failed->detail, "rank " + std::to_string(who.cfg.rank) + " of 3"));
    CHECK(contains(who.failed->detail, "Connection refused"));
    CHECK(who.took < 5 * seconds);
  }
}

TEST_CASE("a name that does not exist, and an address of another host") {
  town at;
  auto all = at.world(2);
  for (arrival& who : all) {
    who.cfg.address = "tcp://no-such-host.invalid:29500";
    who.cfg.join_timeout = 500ms;
  }
  at.meet(all);
  for (const arrival& who : all) {
    REQUIRE(who.failed);
    CHECK(who.failed->code == errc::resolve_failed);
    CHECK(contains(who.failed->detail, "no-such-host.invalid"));
  }
  std::vector<arrival> rank0(1);
  rank0[0].cfg = at.rank(0, 2);
  rank0[0].cfg.address = "tcp://192.0.2.77:29500";
  rank0[0].cfg.secret = "s";
  at.meet(rank0);
  REQUIRE(rank0[0].failed);
  CHECK(rank0[0].failed->code == errc::join_failed);
  CHECK(contains(rank0[0].failed->detail, "192.0.2.77:29500"));
  CHECK(contains(rank0[0].failed->detail, "MASTER_ADDR"));
}

TEST_CASE("a port that another program has") {
  town at;
  colls::listener other;
  REQUIRE(!other.listen(loopback()));
  std::vector<arrival> rank0(1);
  rank0[0].cfg = at.rank(0, 2);
  rank0[0].cfg.address = "tcp://127.0.0.1:" + std::to_string(other.local().port());
  at.meet(rank0);
  REQUIRE(rank0[0].failed);
  CHECK(rank0[0].failed->code == errc::address_in_use);
  CHECK(contains(rank0[0].failed->detail, rank0[0].cfg.address.str().substr(6)));
}

TEST_CASE("where the launcher keeps the port, the ranks probe the same ports in the same order") {
  town at;
  // Two of the ports are taken: by somebody who talks nonsense, and by another job.
  colls::listener nonsense;
  REQUIRE(!nonsense.listen(loopback()));
  town other_job;
  auto others = other_job.world(2);
  for (arrival& who : others) who.cfg.job = "other";
  other_job.meet(others);
  check_world(other_job, others);
  const int other_port = others[0].member->server->local().port();
  const colls::port_list ports{nonsense.local().port(), other_port, free_port()};
  auto all = at.world(3);
  for (arrival& who : all) {
    who.cfg.ports = ports;
    who.cfg.job = "mine";
  }
  const auto answer = [](engine& on, colls::listener& door, const bool* over) -> task<> {
    while (!*over) {
      if (auto socket = door.accept()) {
        colls::stream link(on, std::move(socket));
        co_await say(link,
                     "220 mail.example.org ESMTP ready, say something nice to me at once\r\n");
      }
      co_await on.sleep_until(on.now() + 5 * milliseconds);
    }
  };
  bool over = false;
  colls::task_group background(at.on);
  colls::task_group elsewhere(other_job.on);
  background.start(answer(at.on, nonsense, &over));
  // The other job's engine has to turn for its server to answer.
  const auto turn_other = [](engine& on, engine& other, const bool* done) -> task<> {
    while (!*done) {
      other.poll();
      other.idle(1);
      co_await on.sleep_until(on.now() + milliseconds);
    }
  };
  const auto everybody = [](town& here, std::vector<arrival>& who, bool* done) -> task<> {
    std::vector<task<>> work;
    for (arrival& it : who) work.push_back(come(here.on, &it));
    colls::when_all together(std::move(work));
    co_await together;
    *done = true;
  };
  std::vector<task<>> work;
  work.push_back(everybody(at, all, &over));
  work.push_back(turn_other(at.on, other_job.on, &over));
  at.run_all(std::move(work));
  check_world(at, all);
  CHECK(all[0].member->server->local().port() == all[0].cfg.ports[2]);
  at.leave(all);
  other_job.leave(others);
}

TEST_CASE("a wrong secret fails on its rank, and the right ones go on") {
  town at;
  auto all = at.world(3);
  for (arrival& who : all) who.cfg.secret = "right";
  arrival wrong;
  wrong.cfg = at.rank(2, 3);
  wrong.cfg.secret = "wrong";
  all[2].delay = 400 * milliseconds;
  all.push_back(std::move(wrong));
  at.meet(all);
  REQUIRE(all[3].failed);
  CHECK(all[3].failed->code == errc::auth_failed);
  CHECK(contains(all[3].failed->detail, at.address.substr(6)));
  CHECK(all[3].took < 5 * seconds);
  all.pop_back();
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("two processes with one rank: the second is refused, the first unharmed") {
  town at;
  auto all = at.world(3);
  arrival twin;
  twin.cfg = at.rank(1, 3);
  twin.delay = 100 * milliseconds;
  all[2].delay = 500 * milliseconds;
  all.push_back(std::move(twin));
  at.meet(all);
  REQUIRE(all[3].failed);
  CHECK(all[3].failed->code == errc::rank_taken);
  CHECK(contains(all[3].failed->detail, "rank 1"));
  CHECK(contains(all[3].failed->detail, at.address.substr(6)));
  all.pop_back();
  check_world(at, all);

  // The same once the world is complete, and once that rank has left.
  std::vector<arrival> late(1);
  late[0].cfg = at.rank(1, 3);
  at.meet(late);
  REQUIRE(late[0].failed);
  CHECK(late[0].failed->code == errc::rank_taken);
  at.run(colls::leave(*all[1].member, at.in(2 * seconds)));
  all[1].member.reset();
  std::vector<arrival> later(1);
  later[0].cfg = at.rank(1, 3);
  at.meet(later);
  REQUIRE(later[0].failed);
  CHECK(later[0].failed->code == errc::world_complete);
  at.leave(all);
}

TEST_CASE("two processes that are rank 0: the second finds the port taken") {
  town at;
  auto all = at.world(2);
  arrival twin;
  twin.cfg = at.rank(0, 2);
  twin.delay = 50 * milliseconds;
  all[1].delay = 100 * milliseconds;
  all.push_back(std::move(twin));
  at.meet(all);
  REQUIRE(all[2].failed);
  CHECK(all[2].failed->code == errc::address_in_use);
  all.pop_back();
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("ranks that disagree on the size of the world") {
  town at;
  auto all = at.world(2);
  all[1].cfg.size = 4;
  all[0].cfg.join_timeout = 2s;
  at.meet(all);
  REQUIRE(all[1].failed);
  CHECK(all[1].failed->code == errc::join_failed);
  CHECK(contains(all[1].failed->detail, "has 2 ranks"));
  REQUIRE(all[0].failed);
  CHECK(all[0].failed->code == errc::join_timeout);
}

TEST_CASE("ranks that were told different transports: all of them hear of both") {
  const char* const of_rank[][3] = {
      {"tcp", "tcp", "shm"}, {"hybrid", "tcp", ""}, {"", "hybrid", "shm"}, {"shm", "", "shm"}};
  const char* const says[] = {"rank 0 was told to go by tcp and rank 2 by shm",
                              "rank 0 was told to go by hybrid and rank 1 by tcp",
                              "rank 0 was told to go by hybrid and rank 2 by shm",
                              "rank 0 was told to go by shm and rank 1 by hybrid"};
  for (std::size_t i = 0; i < std::size(says); ++i) {
    town at;
    auto all = at.world(3);
    for (std::size_t r = 0; r < 3; ++r) all[r].cfg.transport = of_rank[i][r];
    at.meet(all);
    for (const arrival& who : all) {
      REQUIRE(who.failed);
      CHECK(who.failed->code == errc::join_failed);
      CHECK(contains(who.failed->detail, says[i]));
      CHECK(contains(who.failed->detail, "COLLS_TRANSPORT"));
      CHECK(who.took < 5 * seconds);
    }
  }
  town at;
  auto all = at.world(2);
  all[1].cfg.transport = "hybrid";  // what rank 0 takes where nothing is said
  at.meet(all);
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("a rank that dies while the others wait is told at once") {
  town at;
  auto all = at.world(4);
  all.pop_back();
  // Plays rank 3: comes in, and its process ends.
  const auto die = [](engine& on, std::string address) -> task<> {
    co_await on.sleep_until(on.now() + 200 * milliseconds);
    const auto place = colls::detail::parse_address(address);
    const auto link = co_await connect(on, loopback(place.port));
    hello mine;
    mine.what = colls::purpose::store;
    mine.rank = 3;
    mine.world = 4;
    mine.job = colls::detail::hash_of("");
    const secret key = co_await colls::detail::ask_for_local_key(on, loopback(place.port), false,
                                                                 on.now() + 5 * seconds);
    co_await colls::prove(*link, mine, key);
    co_await colls::await_verdict(*link, mine);
    std::string first;
    colls::detail::append_frame(first, {.what = colls::detail::store_frame::kind::enter}, {}, {});
    co_await say(*link, first);
    co_await on.sleep_until(on.now() + 100 * milliseconds);
  };
  std::vector<task<>> work;
  for (arrival& who : all) work.push_back(come(at.on, &who));
  work.push_back(die(at.on, at.address));
  at.run_all(std::move(work));
  for (const arrival& who : all) {
    REQUIRE(who.failed);
    CHECK(who.failed->code == errc::peer_failed);
    CHECK(who.failed->culprit == 3);
    CHECK(who.took < 5 * seconds);
  }
}

TEST_CASE("a store that a launcher serves: no rank binds its port") {
  town at;
  hello launcher;
  launcher.what = colls::purpose::store;
  launcher.world = 3;
  launcher.job = colls::detail::hash_of("job");
  colls::store_server server(at.on, launcher, secret("s"));
  REQUIRE(!server.listen(loopback()));
  auto all = at.world(3);
  for (arrival& who : all) {
    who.cfg.address = "tcp://" + colls::detail::text_of(server.local());
    who.cfg.served = true;
    who.cfg.secret = "s";
    who.cfg.job = "job";
  }
  SUBCASE("all come") {
    at.meet(all);
    check_world(at, all);
    CHECK(all[0].member->server == nullptr);
    CHECK(server.present() == 3);
    at.leave(all);
    at.turn(20 * milliseconds);
    CHECK(server.present() == 0);
  }
  SUBCASE("rank 0 does not come") {
    all.erase(all.begin());
    for (arrival& who : all) who.cfg.join_timeout = 400ms;
    at.meet(all);
    for (const arrival& who : all) {
      REQUIRE(who.failed);
      CHECK(who.failed->code == errc::join_timeout);
      CHECK(contains(who.failed->detail, "waiting for rank 0 of 3"));
    }
  }
  SUBCASE("the launcher sees a rank die before it came") {
    all.pop_back();
    const auto tell = [](engine& on, colls::store_server& from) -> task<> {
      co_await on.sleep_until(on.now() + 150 * milliseconds);
      from.announce_failure(2, "pid 4711 was killed by signal 9");
    };
    std::vector<task<>> work;
    for (arrival& who : all) work.push_back(come(at.on, &who));
    work.push_back(tell(at.on, server));
    at.run_all(std::move(work));
    for (const arrival& who : all) {
      REQUIRE(who.failed);
      CHECK(who.failed->code == errc::peer_failed);
      CHECK(who.failed->culprit == 2);
      CHECK(contains(who.failed->detail, "signal 9"));
      CHECK(who.took < 3 * seconds);
    }
  }
}

TEST_CASE("a socket that listens already is used as it is") {
  town at;
  colls::listener given;
  REQUIRE(!given.listen(loopback()));
  auto all = at.world(2);
  for (arrival& who : all) {
    who.cfg.address = "tcp://" + colls::detail::text_of(given.local());
  }
  all[0].cfg.store_fd = ::dup(given.descriptor());
  at.meet(all);
  check_world(at, all);
  at.leave(all);
}

TEST_CASE("no listening where others can reach it without a secret, and never everywhere") {
  town at;
  const auto outside =
      colls::detail::address_towards({boost::asio::ip::make_address("198.51.100.1"), 9});
  std::vector<arrival> rank0(1);
  rank0[0].cfg = at.rank(0, 2);
  rank0[0].cfg.address = "tcp://0.0.0.0:" + std::to_string(free_port());
  rank0[0].cfg.secret = "s";
  at.meet(rank0);
  REQUIRE(rank0[0].failed);
  CHECK(rank0[0].failed->code == errc::insecure_bind);
  if (!outside) {
    MESSAGE("skipped: this host has no address but loopback");
    return;
  }
  const std::string place = outside->to_string() + ":" + std::to_string(free_port());
  auto all = at.world(2);
  for (arrival& who : all) {
    who.cfg.address = "tcp://" + place;
    who.cfg.join_timeout = 2s;
  }
  SUBCASE("refused") {
    all.pop_back();
    at.meet(all);
    REQUIRE(all[0].failed);
    CHECK(all[0].failed->code == errc::insecure_bind);
    CHECK(contains(all[0].failed->detail, place));
  }
  SUBCASE("with a secret") {
    for (arrival& who : all) who.cfg.secret = "s";
    at.meet(all);
    REQUIRE(all[1].member);
    CHECK(all[1].member->link_listener.local().address() == *outside);
    at.leave(all);
  }
  SUBCASE("or where the user takes the risk") {
    for (arrival& who : all) who.cfg.insecure = true;
    at.meet(all);
    REQUIRE(all[1].member);
    at.leave(all);
  }
}

TEST_CASE("a rank that makes no sense, no address, or no time to wait, is said at once") {
  bench at;
  const auto fails = [&](const config& cfg, const char* part) {
    std::optional<membership> member;
    std::optional<failure> failed;
    at.run(keep(colls::meet(at.on, cfg), &member, &failed));
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

TEST_CASE("a congestion control that the system refuses is refused before anybody is dialled") {
  bench at;
  colls::listener door;
  REQUIRE(!door.listen(loopback()));
  const std::string address = "tcp://127.0.0.1:" + std::to_string(door.local().port());
  for (const char* name : {"no-such-one", "of-15-bytes-all"}) {
    std::optional<membership> member;
    std::optional<failure> failed;
    at.run(keep(
        colls::meet(
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
  CHECK(!door.accept());
}

TEST_CASE("links: the dialling rank proves itself, and is told whether its link stays") {
  town at;
  auto all = at.world(2);
  for (arrival& who : all) who.cfg.secret = "s";
  at.meet(all);
  check_world(at, all);
  struct answering : colls::door::host {
    explicit answering(engine& on) : tasks(on) {}
    void enter(std::unique_ptr<colls::stream> guest, const hello& who) override {
      seen.push_back(who.rank);
      guests.push_back(std::move(guest));
      tasks.start(colls::give_verdict(*guests.back(), answer));
    }
    colls::verdict answer = colls::verdict::accepted;
    std::vector<int> seen;
    std::vector<std::unique_ptr<colls::stream>> guests;
    colls::task_group tasks;
  } host(at.on);
  membership& accepting = *all[0].member;
  membership& dialling = *all[1].member;
  colls::door door(at.on, accepting.link_listener, accepting.greeting(colls::purpose::link),
                   accepting.key, host);
  const endpoint where = at.run(dialling.address_of(0));
  for (const bool wanted : {true, false}) {
    host.answer = wanted ? colls::verdict::accepted : colls::verdict::duplicate;
    const auto link = at.run(connect(at.on, where));
    CHECK(at.run(dialling.introduce(*link, 0)) == wanted);
  }
  CHECK(host.seen == std::vector<int>{1, 1});
  const auto link = at.run(connect(at.on, where));
  std::optional<bool> stays;
  std::optional<failure> failed;
  at.run(keep(dialling.introduce(*link, 1), &stays, &failed));
  REQUIRE(failed);
  CHECK(failed->code == errc::protocol_error);
  at.leave(all);
}

TEST_CASE("strangers crowd the store's port while the world meets") {
  town at;
  auto all = at.world(4);
  for (arrival& who : all) who.cfg.secret = "s";
  for (std::size_t r = 1; r < all.size(); ++r) {
    all[r].delay = static_cast<time_point>(r) * 150 * milliseconds;
  }
  const auto crowd = [](engine& on, std::string address, const bool* over) -> task<> {
    const endpoint where = loopback(colls::detail::parse_address(address).port);
    std::vector<std::unique_ptr<colls::stream>> silent;
    for (int i = 0; !*over && i < 3000; ++i) {
      auto link = std::make_unique<colls::stream>(on);
      link->deadline(on.now() + seconds);
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
  const auto everybody = [](town& here, std::vector<arrival>& who, bool* done) -> task<> {
    std::vector<task<>> work;
    for (arrival& it : who) work.push_back(come(here.on, &it));
    colls::when_all together(std::move(work));
    co_await together;
    *done = true;
  };
  bool over = false;
  std::vector<task<>> work;
  work.push_back(everybody(at, all, &over));
  work.push_back(crowd(at.on, at.address, &over));
  at.run_all(std::move(work));
  check_world(at, all);
  CHECK(all[0].member->server->turned_away() > 100);
  at.leave(all);
}
