// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Runs every_collective in worlds of all kinds: started by colls-run, mpirun, torchrun and by hand,
// over IPv4 and IPv6, on one host and on two.

#include <colls/coroutine/sync_wait.hpp>
#include <colls/interprocess.hpp>
#include <colls/run.hpp>
#ifdef HAS_UCX
#include <colls/transport/ucx.hpp>
#endif

#include "../support/shell.hpp"

#include <doctest/doctest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <vector>

using namespace scripts;

namespace {

/// The shared memory of colls that this process has mapped, by inode numbers, which are the same in
/// all processes.
std::set<std::string> shared_memory() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:colls") == line.npos) continue;
    std::istringstream words(line);
    std::string addresses, rights, offset, device, file;
    words >> addresses >> rights >> offset >> device >> file;
    found.insert(file);
  }
  return found;
}

// Below the range of ephemeral ports.
std::string port(int index) { return std::to_string(21000 + ::getpid() % 900 * 10 + index); }

/// Starts three ranks with nothing but their environment variables; the command of rank 2 begins
/// with `prefix`.
std::string by_hand(const std::string& address, const std::string& port_number,
                    const std::string& prefix = "") {
  return "export WORLD_SIZE=3 MASTER_ADDR=" + address + " MASTER_PORT=" + port_number +
         "\n"
         "RANK=0 $program & a=$!\n"
         "RANK=1 $program & b=$!\n"
         "RANK=2 " +
         prefix +
         " $program & c=$!\n"
         "wait $a && wait $b && wait $c\n";
}

/// Two network namespaces connected by a veth pair.
class two_hosts {
 public:
  two_hosts() {
    const std::string id = std::to_string(::getpid());
    a_ = "colls-" + id + "a";
    b_ = "colls-" + id + "b";
    cable_ = "c" + id;
    const auto up = [&](const std::string& host, const std::string& end, int number) {
      const std::string n = std::to_string(number);
      return "ip -n " + host + " link set lo up\n" +                                 //
             "ip -n " + host + " addr add 10.77.0." + n + "/24 dev " + end + "\n" +  //
             "ip -n " + host + " addr add fd77::" + n + "/64 dev " + end + " nodad\n" + "ip -n " +
             host + " link set " + end + " up\n" +  //
             "ip -n " + host + " route add default dev " + end + "\n";
    };
    made_ = shell("set -e\nip netns add " + a_ + "\nip netns add " + b_ + "\nip link add " +
                  cable_ + "a netns " + a_ + " type veth peer name " + cable_ + "b netns " + b_ +
                  "\n" + up(a_, cable_ + "a", 1) + up(b_, cable_ + "b", 2));
  }
  two_hosts(const two_hosts&) = delete;
  two_hosts& operator=(const two_hosts&) = delete;
  ~two_hosts() { shell("ip netns del " + a_ + "\nip netns del " + b_); }

  /// Whether the namespaces exist; if not, prints that the case is skipped.
  bool are_up() const {
    if (made_.status == 0) return true;
    const std::string reason = made_.text.substr(0, made_.text.find('\n'));
    MESSAGE("skipped: network namespaces need root (", reason, ")");
    return false;
  }
  /// Runs one command on each host at the same time; returns the status of the second command
  /// unless it is 0, else that of the first.
  outcome run(const std::string& on_a, const std::string& on_b) const {
    return shell("ip netns exec " + a_ + " " + on_a + " & a=$!\nip netns exec " + b_ + " " + on_b +
                 " & b=$!\nwait $a; status=$?\nwait $b || exit $?\nexit $status\n");
  }
  /// Runs a script in which commands after `$on_a` and `$on_b` run on these hosts.
  outcome script(const std::string& text) const {
    return shell("on_a='ip netns exec " + a_ + "'\non_b='ip netns exec " + b_ + "'\n" + text);
  }
  /// Like `run`, but the first host disappears without closing a connection once `file` exists.
  /// Returns the status of the second command.
  outcome run_until_first_disappears(const std::string& on_a, const std::string& on_b,
                                     const std::string& file) const {
    return shell("ip netns exec " + a_ + " " + on_a + " & a=$!\nip netns exec " + b_ + " " + on_b +
                 " & b=$!\nuntil test -e " + file + "; do sleep 0.1; done\nip -n " + a_ +
                 " addr flush dev " + cable_ + "a\nkill -9 $a\nwait $b\n");
  }

 private:
  std::string a_, b_, cable_;
  outcome made_;
};

struct secret_file {
  secret_file() {
    REQUIRE(shell("umask 077; head -c 32 /dev/urandom | base64 > " + path).status == 0);
  }
  ~secret_file() { std::filesystem::remove(path); }
  std::string path =
      std::filesystem::temp_directory_path() / ("colls-secret-" + std::to_string(::getpid()));
};

std::string node(int rank, const std::string& address, const std::string& port_number) {
  return "$run --nnodes 2 --node-rank " + std::to_string(rank) + " --master-addr " + address +
         " --master-port " + port_number + " -n 2 $program";
}

}  // namespace

TEST_CASE("every name is checked") {
  std::istringstream wanted(
      "all_reduce all_reduce_in_place all_reduce_grouped reduce reduce_in_place reduce_scatter "
      "reduce_scatter_in_place reduce_scatter_v scan exscan broadcast barrier gather "
      "gather_in_place gather_v scatter scatter_in_place scatter_v all_gather all_gather_in_place "
      "all_gather_v all_to_all all_to_all_in_place all_to_all_v send recv send_recv any_source "
      "kept_operations pinned_algorithm split group dup dup_executor timeout invalid_argument "
      "revoke close rank size local_rank local_size node nodes");
  strings expected{std::istream_iterator<std::string>(wanted), {}};
  strings found = all_names();
  std::sort(expected.begin(), expected.end());
  std::sort(found.begin(), found.end());
  CHECK(found == expected);
}

TEST_CASE("colls-run") {
  for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
    CAPTURE(ranks);
    check_all(shell("$run -n " + std::to_string(ranks) + " $program"));
  }
}

TEST_CASE("Open MPI's mpirun") {
  if (!has("mpirun.openmpi")) {
    MESSAGE("skipped: no mpirun.openmpi");
    return;
  }
  check_all(shell("mpirun.openmpi --allow-run-as-root --oversubscribe -n 3 $program"));
}

TEST_CASE("MPICH's mpirun") {
  if (!has("mpirun.mpich")) {
    MESSAGE("skipped: no mpirun.mpich");
    return;
  }
  check_all(shell("mpirun.mpich -n 3 $program"));
}

TEST_CASE("torchrun") {
  if (shell("/usr/bin/python3 -c 'import torch.distributed.run'").status != 0) {
    MESSAGE("skipped: no torch.distributed for /usr/bin/python3");
    return;
  }
  check_all(
      shell("/usr/bin/python3 -m torch.distributed.run --redirects 1 --tee 1 --no_python "
            "--nproc_per_node 3 --master_port " +
            port(0) + " $program"));
}

TEST_CASE("torchrun starts all ranks again after a failure, as another job") {
  if (shell("/usr/bin/python3 -c 'import torch.distributed.run'").status != 0) {
    MESSAGE("skipped: no torch.distributed for /usr/bin/python3");
    return;
  }
  const std::string fails_twice =
      "\"$0\" || exit 4; [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0;"
      "[ $RANK = 1 ] && exit 3; exec sleep 100";
  const outcome ended = shell(
      "/usr/bin/python3 -m torch.distributed.run --redirects 1 --tee 1 --no_python "
      "--max_restarts 2 --nproc_per_node 3 --master_port " +
      port(6) + " sh -c '" + fails_twice + "' $program");
  CAPTURE(ended.text);
  CHECK(ended.status == 0);
  for (const char* start : {"start 1 of 3: job none\n", "start 2 of 3: job none/restart 1\n",
                            "start 3 of 3: job none/restart 2\n"}) {
    CHECK(ended.text.find(start) != std::string::npos);
  }
}

TEST_CASE("by hand over IPv4") { check_all(shell(by_hand("127.0.0.1", port(1)))); }

TEST_CASE("by hand over IPv6") {
  if (shell("cat /proc/net/if_inet6").text.find("0001 ") == std::string::npos) {
    MESSAGE("skipped: no IPv6 loopback");
    return;
  }
  check_all(shell(by_hand("[::1]", port(2))));
  check_all(shell(by_hand("::1", port(3))));
}

TEST_CASE("a rank of another user, and a rank in its own process namespace") {
  const std::string user = "setpriv --reuid 65534 --clear-groups";
  if (shell(user + " test -x $program").status != 0) {
    MESSAGE("skipped: another user needs root, and must reach the program");
    return;
  }
  // A rank of another user can join only with a secret.
  const outcome other_user =
      shell("export COLLS_SECRET=shared; " + by_hand("127.0.0.1", port(7), user));
  check_all(other_user);
  CHECK(other_user.text.find("not by shared memory: ") != std::string::npos);
  const outcome own_processes = shell(by_hand("127.0.0.1", port(8), "unshare --pid --fork"));
  check_all(own_processes);
  CHECK(own_processes.text.find("not by shared memory: ") == std::string::npos);
}

TEST_CASE("two hosts with a common secret") {
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  const secret_file secret;
  const std::string env = "env COLLS_SECRET_FILE=" + secret.path + " ";
  for (const char* address : {"10.77.0.1", "fd77::1"}) {
    check_all(hosts.run(env + node(0, address, port(4)), env + node(1, address, port(4))));
  }
}

TEST_CASE("a host is lost and comes again: the job goes on with one host, then with two") {
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  const secret_file secret;
  const outcome ran = hosts.script(
      "export COLLS_SECRET_FILE=" + secret.path + " log=" + secret.path + ".log\n" +
      "options='--nnodes 1:2 --master-addr 10.77.0.1 --master-port " + port(5) + " -n 2'\n" +
      "repair=\"--on-failure replace ${program%/*}/repair --steps 600 --pause 10 --at-least 2\"\n"
      "is_at() { until [ $(grep -c \"rank 0 of $1 is at step\" $log) -ge $2 ]; do sleep 0.05; "
      "done; }\n"
      "$on_a $run $options --node-rank 0 $repair >$log 2>&1 & a=$!\n"
      "$on_b $run $options --node-rank 1 $repair & b=$!\n"
      "is_at 4 1; kill -9 $b\n"
      "is_at 2 1; $on_b $run $options --node-rank 1 $repair & b=$!\n"
      "is_at 4 2; wait $a; status=$?\n"
      "cat $log; rm $log; wait $b || exit $?\nexit $status\n");
  CAPTURE(ran.text);
  CHECK(ran.status == 0);
  CHECK(count(ran.text, "the sum of 600 steps on 4 ranks") == 1);
}

TEST_CASE("a job starts with fewer hosts if no more come") {
  const outcome ran = shell(
      "export COLLS_SECRET=a-secret-of-this-test\n"
      "$run --nnodes 1:2 --node-rank 0 --master-addr 127.0.0.1 --master-port " +
      port(6) + " -n 2 sh -c 'echo rank $COLLS_RANK of $COLLS_WORLD_SIZE'");
  CAPTURE(ran.text);
  CHECK(ran.status == 0);
  CHECK(count(ran.text, " of 2\n") == 2);
}

TEST_CASE("two hosts without a secret") {
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  const outcome ran = hosts.run(node(0, "10.77.0.1", port(5)), node(1, "10.77.0.1", port(5)));
  CAPTURE(ran.text);
  CHECK(ran.status == 2);
  CHECK(ran.text.find("COLLS_SECRET_FILE") != std::string::npos);

  const std::string by_hand =
      "env COLLS_JOIN_TIMEOUT=2 WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 "
      "MASTER_PORT=" +
      port(6) + " ";
  const outcome refused = hosts.run(by_hand + "RANK=0 $program", by_hand + "RANK=1 $program");
  CAPTURE(refused.text);
  CHECK(refused.status == 1);
  CHECK(refused.text.find("insecure_bind: rank 0 would listen at 10.77.0.1:") != std::string::npos);
  CHECK(refused.text.find("COLLS_SECRET_FILE") != std::string::npos);
  CHECK(names_in(refused.text).empty());

  // Both hosts are one machine, but neither can reach the other's local sockets.
  const std::string trusted = by_hand + "COLLS_INSECURE=1 ";
  const outcome separate = hosts.run(trusted + "RANK=0 $program", trusted + "RANK=1 $program");
  check_all(separate);
  const std::string reason =
      "ranks 0 and 1 run on one machine in different network namespaces: they share no memory";
  CHECK(count(separate.text, reason) == 1);
  CHECK(count(separate.text, "warning: ") == 1);
  const std::string shm = trusted + "COLLS_TRANSPORT=shm ";
  const outcome shm_only = hosts.run(shm + "RANK=0 $program", shm + "RANK=1 $program");
  CAPTURE(shm_only.text);
  CHECK(shm_only.status == 1);
  CHECK(count(shm_only.text,
              "shm was asked for, and it runs on another host, or in another network") > 0);
}

TEST_CASE("ranks of two hosts join through a file store") {
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  const std::string file =
      std::filesystem::temp_directory_path() / ("colls-store-" + std::to_string(::getpid()));
  const std::string by_file = "env COLLS_WORLD_SIZE=2 COLLS_STORE=file://" + file + " ";
  check_all(hosts.run(by_file + "COLLS_RANK=0 $program", by_file + "COLLS_RANK=1 $program"));
  std::filesystem::remove(file);
}

TEST_CASE("ranks of two launchers on one host, and a rank with another host name, share memory") {
  const secret_file secret;
  const std::string env = "COLLS_TRANSPORT=shm COLLS_SECRET_FILE=" + secret.path + " ";
  check_all(shell(env + node(0, "127.0.0.1", port(9)) + " & a=$!\n" + env +
                  node(1, "127.0.0.1", port(9)) + " & b=$!\nwait $a; status=$?\n" +
                  "wait $b || exit $?\nexit $status\n"));
  const std::string contained = "unshare --uts sh -c 'hostname of-a-container && exec \"$0\"'";
  if (shell(contained + " true").status != 0) {
    MESSAGE("skipped in part: a host name of its own needs root");
    return;
  }
  check_all(shell("export COLLS_TRANSPORT=shm\n" + by_hand("127.0.0.1", port(0), contained)));
}

TEST_CASE("a rank of two hosts" * doctest::skip()) {
  const int status = colls::run([](colls::world& world) -> colls::task<> {
    const char* const dies = std::getenv("DIES");
    const bool is_victim = dies != nullptr && std::atoi(dies) == world.rank();
    constexpr colls::options by_hosts{.algorithm = colls::algorithm::hierarchical};
    std::vector<int> data(1 << 20);
    const int sum = world.size() * (world.size() - 1) / 2;
    bool right = true;
    for (const colls::options& opts : {by_hosts, colls::options{}}) {
      std::fill(data.begin(), data.end(), world.rank());
      co_await world.all_reduce(data, opts);
      right &= std::count(data.begin(), data.end(), sum) == 1 << 20;
    }
    co_await world.barrier();
    std::string line =
        "node " + std::to_string(world.node()) + ": " + (right ? "right" : "wrong") + ", maps";
    for (const std::string& memory : shared_memory()) line += " " + memory;
    std::printf("%s\n", line.c_str());
#ifdef HAS_UCX
    const bool any_sent = colls::ucx::counted_traffic().messages_sent > 0;
    std::printf("%s through UCX\n", any_sent ? "messages" : "nothing");
#endif
    std::fflush(stdout);
    co_await world.barrier();
    if (dies == nullptr) co_return;
    if (is_victim) {
      // The signal arrives somewhere in a call.
      std::signal(SIGALRM, [](int) { ::kill(::getpid(), SIGKILL); });
      ::ualarm(50'000, 0);
    }
    try {
      for (;;) co_await world.all_reduce(data, by_hosts);
    } catch (const colls::error& thrown) {
      const colls::failure& why = thrown.record();
      std::printf("ended by %s of rank %d\n", colls::detail::text_of(why.code).name, why.culprit);
      std::fflush(stdout);
    }
  });
  CHECK(status == 0);
}

namespace {

void check_two_hosts_over(const std::string& transport) {
  CAPTURE(transport);
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  const secret_file secret;
  for (const std::string& dies : strings{"none", "1", "2"}) {
    CAPTURE(dies);
    std::string env = "env COLLS_SECRET_FILE=" + secret.path + " UCX_TLS=tcp UCX_LOG_LEVEL=fatal " +
                      "COLLS_TRANSPORT=" + transport + " ";
    const bool kills = dies != "none";
    if (kills) env += "DIES=" + dies + " ";
    const auto ranks = [&](int node) {
      return env + "$run --nnodes 2 --node-rank " + std::to_string(node) +
             " --master-addr 10.77.0.1 --master-port " + port(4) +
             " -n 2 $self --no-skip '-tc=a rank of two hosts'";
    };
    const outcome ran = hosts.run(ranks(0), ranks(1));
    CAPTURE(ran.text);
    CHECK((ran.status == 0) == !kills);
    std::vector<strings> maps;
    for (int rank = 0; rank < 4; ++rank) {
      const std::string start =
          "[" + std::to_string(rank) + "] node " + std::to_string(rank / 2) + ": right, maps ";
      const std::size_t at = ran.text.find(start);
      REQUIRE(at != std::string::npos);
      std::istringstream rest(ran.text.substr(at + start.size()));
      std::string line;
      std::getline(rest, line);
      std::istringstream words(line);
      maps.emplace_back(std::istream_iterator<std::string>(words),
                        std::istream_iterator<std::string>());
    }
    for (int one = 0; one < 4; ++one) {
      for (int other = one + 1; other < 4; ++other) {
        CAPTURE(one);
        CAPTURE(other);
        const strings& first = maps[static_cast<std::size_t>(one)];
        const strings& second = maps[static_cast<std::size_t>(other)];
        const bool share = std::find_first_of(first.begin(), first.end(), second.begin(),
                                              second.end()) != first.end();
        CHECK(share == (one / 2 == other / 2));
      }
      const std::string ended =
          "[" + std::to_string(one) + "] ended by peer_failed of rank " + dies;
      CHECK(count(ran.text, ended) == (kills && std::to_string(one) != dies ? 1 : 0));
    }
#ifdef HAS_UCX
    for (int rank = 0; rank < 4; ++rank) {
      const char* const what =
          transport == "ucx" ? "] messages through UCX" : "] nothing through UCX";
      CHECK(count(ran.text, "[" + std::to_string(rank) + what) == 1);
    }
#endif
  }
}

}  // namespace

TEST_CASE("ranks of one host share memory in a world of two hosts, and use TCP to the other host") {
  check_two_hosts_over("hybrid");
}

TEST_CASE("ranks of one host share memory in a world of two hosts, and use UCX to the other host") {
#ifdef HAS_UCX
  check_two_hosts_over("ucx");
#else
  MESSAGE("skipped: no libucx-dev");
#endif
}

TEST_CASE("a rank that may spin" * doctest::skip()) {
  const int status = colls::run([](colls::world& world) -> colls::task<> {
    boost::asio::io_context second(1);
    colls::world subworld = co_await world.dup(second.get_executor());
    const auto waits_by = [](const colls::world& each) {
      return each.net().driver().spins() ? "spins" : "sleeps";
    };
    std::printf("%d of %d here %s, its subworld %s, cores: %d\n", world.local_rank(),
                world.local_size(), waits_by(world), waits_by(subworld), world.net().costs().cores);
    std::fflush(stdout);
    co_await world.barrier();
    colls::sync_wait(subworld, subworld.close());
  });
  CHECK(status == 0);
}

TEST_CASE("ranks of two hosts on one machine spin only where it has a core for each of them") {
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  cpu_set_t before;
  REQUIRE(::sched_getaffinity(0, sizeof before, &before) == 0);
  if (CPU_COUNT(&before) < 2) {
    MESSAGE("skipped: one core");
    return;
  }
  const secret_file secret;
  cpu_set_t two = before;
  for (int core = 0, left = 2; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &two) && left-- <= 0) CPU_CLR(core, &two);
  }
  for (const int each : {1, 2}) {
    CAPTURE(each);
    const auto ranks = [&](int node) {
      return "env COLLS_SECRET_FILE=" + secret.path + " $run --nnodes 2 --node-rank " +
             std::to_string(node) + " --master-addr 10.77.0.1 --master-port " + port(4) + " -n " +
             std::to_string(each) + " $self --no-skip '-tc=a rank that may spin'";
    };
    ::sched_setaffinity(0, sizeof two, &two);
    const outcome ran = hosts.run(ranks(0), ranks(1));
    ::sched_setaffinity(0, sizeof before, &before);
    CAPTURE(ran.text);
    CHECK(ran.status == 0);
    // Each host has half of the machine's two cores: two ranks share one core.
    const std::string line = " of " + std::to_string(each) + " here " +
                             (each == 1 ? "spins" : "sleeps") + ", its subworld sleeps, cores: 1\n";
    CHECK(count(ran.text, line) == 2 * each);
  }
}

TEST_CASE("a rank that waits for one of another host" * doctest::skip()) {
  const int status = colls::run([](colls::world& world) -> colls::task<> {
    int value = 0;
    co_await world.barrier();
    if (world.rank() == 1) std::ofstream(std::getenv("READY")) << "ready";
    try {
      co_await world.recv(std::span(&value, 1), 1 - world.rank());
    } catch (const colls::error& thrown) {
      const colls::failure& why = thrown.record();
      std::printf("ended by %s of rank %d\n", colls::detail::text_of(why.code).name, why.culprit);
    }
  });
  CHECK(status == 0);
}

// The host sends no notice of its failure, and data in transit to it keeps the kernel from sending
// keep-alive probes.
TEST_CASE("a rank that waits for a host that disappears without notice reports its failure") {
  const two_hosts hosts;
  if (!hosts.are_up()) return;
  const std::string ready =
      std::filesystem::temp_directory_path() / ("colls-ready-" + std::to_string(::getpid()));
  const std::string rank =
      "env COLLS_INSECURE=1 WORLD_SIZE=2 MASTER_ADDR=10.77.0.1 MASTER_PORT=" + port(4) +
      " READY=" + ready + " RANK=";
  const std::string waits = " $self --no-skip '-tc=a rank that waits for one of another host'";
  const outcome ran =
      hosts.run_until_first_disappears(rank + "0" + waits, rank + "1" + waits, ready);
  std::filesystem::remove(ready);
  CAPTURE(ran.text);
  CHECK(ran.status == 0);
  CHECK(count(ran.text, "ended by peer_failed of rank 0") == 1);
}
