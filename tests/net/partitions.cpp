// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Ranks in two network namespaces, and packets that the receiver's kernel drops: both sides have to
// detect that the other side is cut off.
#include "../fault/processes.hpp"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace {

using namespace processes;
using namespace std::chrono_literals;

/// Runs a shell command without output and returns its exit status.
int shell(const std::string& command) {
  const std::string script = "PATH=\"$PATH:/usr/sbin:/sbin\"; { " + command + "; } >/dev/null 2>&1";
  const int status = std::system(script.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// Two network namespaces connected by a veth pair: 10.77.0.1 and 10.77.0.2.
class two_hosts {
 public:
  explicit two_hosts(int number) {
    const std::string id = std::to_string(::getpid()) + "-" + std::to_string(number);
    for (int host = 0; host < 2; ++host) {
      names_[host] = "colls-" + id + (host == 0 ? "a" : "b");
      ends_[host] = "c" + id + (host == 0 ? "a" : "b");
    }
    is_up_ = shell("ip netns add " + names_[0] + " && ip netns add " + names_[1] +
                   " && ip link add " + ends_[0] + " netns " + names_[0] + " type veth peer name " +
                   ends_[1] + " netns " + names_[1]) == 0;
    for (int host = 0; host < 2 && is_up_; ++host) {
      const std::string in = "ip -n " + names_[host];
      is_up_ = shell(in + " link set lo up && " + in + " addr add " + address(host) + "/24 dev " +
                     ends_[host] + " && " + in + " link set " + ends_[host] + " up") == 0;
    }
  }
  two_hosts(const two_hosts&) = delete;
  ~two_hosts() { shell("ip netns del " + names_[0] + "; ip netns del " + names_[1]); }

  bool is_up() const { return is_up_; }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }
  /// Moves this process into the namespace of `host`.
  bool enter(int host) const {
    const colls::detail::descriptor space(
        ::open(("/run/netns/" + names_[host]).c_str(), O_RDONLY | O_CLOEXEC));
    return space && ::setns(space.get(), CLONE_NEWNET) == 0;
  }
  /// From now on all packets that the other host sends to `host` are dropped without a notice.
  bool deafen(int host) const {
    return shell("ip netns exec " + names_[host] +
                 " nft 'add table inet f; add chain inet f i { type filter hook input priority 0; "
                 "}; add rule inet f i ip saddr " +
                 address(1 - host) + " drop'") == 0;
  }
  /// Ends what `deafen` has begun.
  void heal() const {
    for (const std::string& name : names_) {
      shell("ip netns exec " + name + " nft 'delete table inet f'");
    }
  }

 private:
  std::string names_[2];
  std::string ends_[2];
  bool is_up_ = false;
};

/// Ranks 0 and 1 on the first host, 2 on the second.
constexpr int host_of(int rank) { return rank == 2 ? 1 : 0; }

/// All ranks run collectives all the time.
task<> busy(colls::world& world, const line& test) {
  std::vector<int> data(30'000);
  for (int round = 0;; ++round) {
    co_await world.all_reduce(data);
    if (round == 20) test.say("ready");
  }
}
/// Data is in transit in both directions all the time: a deaf host retransmits its data again and
/// again, and the other host receives the retransmissions.
task<> crossing(colls::world& world, const line& test) {
  const int peer = world.rank() == 2 ? 0 : 2;
  std::vector<char> sent(4 << 20);
  std::vector<char> received(sent.size());
  co_await world.barrier();
  for (int round = 0;; ++round) {
    if (world.rank() != 1) {
      auto sending = world.send(sent, peer, 1);
      co_await world.recv(received, peer, 1);
      co_await sending;
    } else if (round > 2) {
      co_await world.recv(received, peer, 1);
    }
    if (round == 2) test.say("ready");
  }
}
/// Every rank waits for a rank of the other host, and no data is in transit.
task<> idle(colls::world& world, const line& test) {
  const int peer = world.rank() == 2 ? 0 : 2;
  std::vector<int> data(1);
  co_await world.barrier();
  // Every rank has a connection to its peer.
  for (int source = 0; source < 2; ++source) {
    if (world.rank() == source) co_await world.send(data, 2, 1);
    if (world.rank() == 2) co_await world.recv(data, source, 1);
  }
  test.say("ready");
  co_await world.recv(data, peer, 2);
}

/// Works until the other host is cut off, goes on with what is left, and calls again after the cut.
task<> survive(colls::world& world, const line& test) {
  std::vector<int> data(30'000);
  bool is_cut = false;
  for (int round = 0; !is_cut; ++round) {
    try {
      co_await world.all_reduce(data);
    } catch (const colls::error&) {
      is_cut = true;
    }
    if (round == 20) test.say("ready");
  }
  const auto shrink = [&]() -> task<> {
    try {
      colls::world left = co_await world.shrink();
      world = std::move(left);
      test.say("left " + std::to_string(world.size()));
    } catch (const colls::error& thrown) {
      test.say(thrown.code().message());
    }
  };
  auto first = shrink();
  co_await first;
  if (world.rank() == 2) {
    test.hear();  // the cut is over
    auto second = shrink();
    co_await second;
    auto refused = world.barrier();
    try {
      co_await refused;
    } catch (const colls::error& thrown) {
      test.say("then " + thrown.code().message());
    }
  } else {
    // Rank 2 cannot disturb what is left.
    data.assign(data.size(), world.rank());
    for (int is_asked_to_end = 0; is_asked_to_end == 0;) {
      co_await world.all_reduce(data, colls::maximum{});
      is_asked_to_end = test.told() ? 1 : 0;
      co_await world.all_reduce(std::span(&is_asked_to_end, 1), colls::maximum{});
    }
    test.say(data == std::vector<int>(data.size(), 1) ? "right" : "wrong");
    auto closing = world.close();
    co_await closing;
    test.say("closed");
  }
  test.hear();
}

struct partition {
  const char* name;
  bool deaf[2];  // the first host, the second
  task<> (*work)(colls::world&, const line&);
};
constexpr partition partitions[] = {
    {"neither hears the other, at work", {true, true}, &busy},
    {"the first host is deaf, at work", {true, false}, &busy},
    {"the second host is deaf, at work", {false, true}, &busy},
    {"the first host is deaf, both send", {true, false}, &crossing},
    {"the second host is deaf, both send", {false, true}, &crossing},
    {"neither hears the other, idle", {true, true}, &idle},
    {"the first host is deaf, idle", {true, false}, &idle},
    {"the second host is deaf, idle", {false, true}, &idle},
};

}  // namespace

TEST_CASE("hosts that are cut off from each other find out within 17 s, and name each other") {
  if (::geteuid() != 0 || shell("command -v nft && command -v ip") != 0) {
    MESSAGE("skipped: partitions need root, ip and nft");
    return;
  }
  struct running {
    explicit running(int number) : hosts(number) {}
    two_hosts hosts;
    std::unique_ptr<job> all;
    double cut = 0;
  };
  std::vector<std::unique_ptr<running>> worlds;
  for (const partition& each : partitions) {
    CAPTURE(std::string(each.name));
    auto started = std::make_unique<running>(static_cast<int>(worlds.size()));
    if (!started->hosts.is_up()) {
      MESSAGE("skipped: no network namespaces here");
      return;
    }
    colls::config cfg;
    cfg.secret = "a shared secret";
    cfg.join_timeout = 60s;
    const two_hosts& hosts = started->hosts;
    const auto prepare = [&hosts](colls::config& rank_cfg) {
      if (!hosts.enter(host_of(rank_cfg.rank))) ::_exit(4);
      rank_cfg.address = "tcp://" + two_hosts::address(0) + ":29500";
      rank_cfg.store_fd = -1;
    };
    started->all = std::make_unique<job>(3, each.work, cfg, prepare);
    worlds.push_back(std::move(started));
  }
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    CAPTURE(std::string(partitions[i].name));
    REQUIRE(worlds[i]->all->all_say("ready", 60));
    worlds[i]->cut = now();
    for (int host = 0; host < 2; ++host) {
      if (partitions[i].deaf[host]) REQUIRE(worlds[i]->hosts.deafen(host));
    }
  }
  double slowest = 0;
  for (std::size_t i = 0; i < worlds.size(); ++i) {
    CAPTURE(std::string(partitions[i].name));
    running& world = *worlds[i];
    for (int rank = 0; rank < 3; ++rank) {
      CAPTURE(rank);
      const ending& end = world.all->wait(rank, 40);
      CAPTURE(world.all->log(rank));
      CHECK(end.status == 1);
      CHECK(end.code == colls::errc::peer_failed);
      REQUIRE(end.culprit >= 0);
      // A host that is heard but hears nothing reports to the others that rank 0 has failed.
      if (rank == 1) {
        CHECK(end.culprit != rank);
      } else {
        CHECK(host_of(end.culprit) != host_of(rank));
      }
      CHECK(end.time - world.cut < 17);
      slowest = std::max(slowest, end.time - world.cut);
    }
  }
  MESSAGE("the last rank detected it after ", slowest, " s");
}

TEST_CASE(
    "after a cut the larger part goes on, and the smaller one is excluded when the cut ends") {
  if (::geteuid() != 0 || shell("command -v nft && command -v ip") != 0) {
    MESSAGE("skipped: partitions need root, ip and nft");
    return;
  }
  // In the second world, rank 2 is stopped from before the cut until after the shrink.
  const two_hosts hosts[2] = {two_hosts(90), two_hosts(91)};
  std::unique_ptr<job> worlds[2];
  for (int i = 0; i < 2; ++i) {
    if (!hosts[i].is_up()) {
      MESSAGE("skipped: no network namespaces here");
      return;
    }
    colls::config cfg;
    cfg.secret = "a shared secret";
    cfg.join_timeout = 60s;
    const auto prepare = [&host = hosts[i]](colls::config& rank_cfg) {
      if (!host.enter(host_of(rank_cfg.rank))) ::_exit(4);
      rank_cfg.address = "tcp://" + two_hosts::address(0) + ":29500";
      rank_cfg.store_fd = -1;
    };
    worlds[i] = std::make_unique<job>(3, &survive, cfg, prepare);
  }
  for (const auto& each : worlds) REQUIRE(each->all_say("ready", 60));
  worlds[1]->stop(2);
  for (const two_hosts& each : hosts) {
    REQUIRE(each.deafen(0));
    REQUIRE(each.deafen(1));
  }
  for (const auto& each : worlds) {
    for (const int rank : {0, 1}) CHECK(each->hear(rank, 40) == "left 2");
  }
  CHECK(worlds[0]->hear(2, 40) == "no_quorum");
  for (const two_hosts& each : hosts) each.heal();
  worlds[1]->go_on(2);
  // The stopped rank has missed the whole cut.
  const std::string woken = worlds[1]->hear(2, 40);
  CAPTURE(woken);
  CHECK((woken == "no_quorum" || woken == "excluded"));
  for (const auto& each : worlds) {
    each->tell(2);
    CHECK(each->hear(2, 40) == "excluded");
    CHECK(each->hear(2, 40) == "then excluded");
    // What is left closes without the excluded rank, which lives.
    const double told_at = now();
    each->tell(0);
    for (const int rank : {0, 1}) CHECK(each->hear(rank, 40) == "right");
    for (const int rank : {0, 1}) CHECK(each->hear(rank, 40) == "closed");
    CHECK(now() - told_at < 5);
  }
}
