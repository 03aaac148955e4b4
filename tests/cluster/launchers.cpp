// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Runs every_collective on clusters that are started for the test: Slurm with two nodes on this
// machine, and Open MPI's mpirun and MPICH's mpiexec on three hosts that are network namespaces. No
// address and no secret is passed.

#include <colls/interprocess.hpp>
#include <colls/run.hpp>

#include "../support/folder.hpp"
#include "../support/shell.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <string>

using namespace scripts;

namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string text_of(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

/// Whether this process can start daemons and make namespaces, and has these commands; if not,
/// prints that the case is skipped.
bool can_start(const strings& commands) {
  if (::geteuid() != 0) {
    MESSAGE("skipped: daemons and namespaces need root");
    return false;
  }
  for (const std::string& command : commands) {
    if (has(command)) continue;
    MESSAGE("skipped: no ", command);
    return false;
  }
  return true;
}

/// A Slurm controller, two nodes that are this machine, and a munge daemon of their own.
class slurm_cluster {
 public:
  slurm_cluster() {
    const std::string d = home_.path;
    const std::string name = shell("hostname").text;
    const std::string host = name.substr(0, name.find('\n'));
    const int port = 23000 + ::getpid() % 900 * 4;
    fs::permissions(home_.path, fs::perms(0711));
    fs::create_directories(d + "/munge");
    fs::permissions(d + "/munge", fs::perms(0700));
    for (const char* part : {"/state", "/tmp-n1", "/tmp-n2"}) fs::create_directories(d + part);
    std::ofstream(d + "/hosts") << "127.0.0.1 localhost " << host << " n1 n2\n";
    std::ofstream conf(d + "/slurm.conf");
    conf << "ClusterName=test\nSlurmctldHost=" << host << "(127.0.0.1)\nSlurmctldPort=" << port
         << "\nSlurmUser=root\nSlurmdUser=root\nAuthInfo=socket=" << d << "/munge/socket\n"
         << "StateSaveLocation=" << d << "/state\nSlurmdSpoolDir=" << d << "/spool-%n\nTmpFS=" << d
         << "/tmp-%n\nSlurmctldPidFile=" << d << "/ctld.pid\nSlurmdPidFile=" << d
         << "/slurmd-%n.pid\nSlurmctldLogFile=" << d << "/ctld.log\nSlurmdLogFile=" << d
         << "/slurmd-%n.log\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
         << "JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n"
         << "SelectTypeParameters=CR_Core\nSlurmdParameters=config_overrides\nReturnToService=2\n";
    for (const int node : {1, 2}) {
      conf << "NodeName=n" << node << " NodeHostname=" << host
           << " NodeAddr=127.0.0.1 Port=" << port + node << " CPUs=4 RealMemory=1000\n";
    }
    conf << "PartitionName=p Nodes=n1,n2 Default=YES State=UP\n";
    conf.close();
    const outcome started = shell(
        "set -e\ncd " + d +
        "\n"
        "head -c 1024 /dev/urandom > munge/key\nchmod 400 munge/key\n"
        "munged --key-file=$PWD/munge/key --socket=$PWD/munge/socket --pid-file=$PWD/munge/pid "
        "--log-file=$PWD/munge/log --seed-file=$PWD/munge/seed --force\n" +
        environment() +
        "slurmctld -c\n"
        "for each in n1 n2; do unshare -m sh -c \"mount --bind $PWD/hosts /etc/hosts && "
        "exec slurmd -N $each -c\"; done\n"
        "for try in 1 2 3 4 5 6 7 8 9 10; do timeout 5 srun -N2 true && exit 0; sleep 0.5; done\n"
        "cat *.log munge/log\nexit 1");
    if (started.status != 0) stop();
    INFO(started.text);
    REQUIRE(started.status == 0);
  }
  slurm_cluster(const slurm_cluster&) = delete;
  slurm_cluster& operator=(const slurm_cluster&) = delete;
  ~slurm_cluster() { stop(); }

  /// Runs a script in which commands find this cluster.
  outcome run(const std::string& script, int seconds = 60) const {
    return shell(environment() + "cd " + home_.path + "\n" + script, seconds);
  }
  const folder& home() const { return home_; }

 private:
  void stop() const {
    shell("cd " + home_.path +
          "\npids=$(cat *.pid munge/pid)\nkill -9 $pids\n"
          "for try in $(seq 100); do kill -0 $pids || break; sleep 0.05; done");
  }
  std::string environment() const { return "export SLURM_CONF=" + home_.path + "/slurm.conf\n"; }

  folder home_;
};

/// Three network namespaces on a bridge, and a script that runs a command on one of them as ssh
/// does.
class three_hosts {
 public:
  three_hosts() {
    std::string script =
        "set -e\nip link add " + bridge() + " type bridge\nip link set " + bridge() + " up\n";
    std::ofstream agent(this->agent());
    agent << "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do shift; done\nhost=$1\nshift\n";
    for (int i = 1; i <= 3; ++i) {
      const std::string n = std::to_string(i);
      script += "ip netns add " + name(i) + "\nip link add " + cable(i) +
                " type veth peer name eth0 netns " + name(i) + "\nip link set " + cable(i) +
                " master " + bridge() + " up\nip -n " + name(i) + " addr add 10.78.0." + n +
                "/24 dev eth0\nip -n " + name(i) + " link set eth0 up\nip -n " + name(i) +
                " link set lo up\n";
      fs::create_directories(folder_of(i));
      agent << "[ $host = 10.78.0." << n << " ] && " << enter(i) << "\"hostname host" << n
            << "; $*\"\n";
    }
    agent.close();
    fs::permissions(this->agent(), fs::perms(0700));
    const outcome made = shell(script);
    INFO(made.text);
    REQUIRE(made.status == 0);
  }
  three_hosts(const three_hosts&) = delete;
  three_hosts& operator=(const three_hosts&) = delete;
  ~three_hosts() {
    // A namespace, and with it its end of a cable, exists until its last process has ended.
    for (int i = 1; i <= 3; ++i) shell("ip link del " + cable(i) + "\nip netns del " + name(i));
    shell("ip link del " + bridge());
  }

  std::string agent() const { return home_ / "agent"; }
  /// Runs a script on the first host.
  outcome run(const std::string& script, int seconds = 60) const {
    const std::string file = home_ / "script";
    std::ofstream(file) << script;
    return shell("export program run\n" + enter(1) + "'hostname host1; exec sh " + file + "'",
                 seconds);
  }

 private:
  // Daemons of one host name and one folder for temporary files would share files.
  std::string folder_of(int host) const { return home_ / std::to_string(host); }
  std::string enter(int host) const {
    return "exec env TMPDIR=" + folder_of(host) + " ip netns exec " + name(host) +
           " unshare --uts sh -c ";
  }
  std::string name(int host) const { return "colls-" + id_ + "-" + std::to_string(host); }
  std::string cable(int host) const { return "v" + id_ + std::to_string(host); }
  std::string bridge() const { return "b" + id_; }

  // Interfaces have names of at most 15 characters.
  static inline int made_ = 0;
  std::string id_ = std::to_string(::getpid()) + '-' + std::to_string(++made_) + '-';
  folder home_;
};

}  // namespace

TEST_CASE("srun starts ranks on two nodes") {
  if (!can_start({"slurmctld", "slurmd", "srun", "sbatch", "munged"})) return;
  const slurm_cluster slurm;
  for (const char* kind : {"pmi2", "pmix", "none"}) {
    for (const int ranks : {2, 5}) {
      CAPTURE(kind);
      CAPTURE(ranks);
      check_all(slurm.run("srun -N2 -n" + std::to_string(ranks) + " --mpi=" + kind + " $program"));
    }
  }
  // With PMI the address of the store is one that other hosts can reach.
  for (const char* kind : {"pmi2", "pmix"}) {
    CAPTURE(kind);
    const outcome by_pmi =
        slurm.run(std::string("COLLS_LOG=debug srun -N2 -n4 --mpi=") + kind + " $program");
    CHECK(by_pmi.text.find("rank 3 listens at 127.") == std::string::npos);
    CHECK(by_pmi.text.find("rank 3 listens at ") != std::string::npos);
  }
}

TEST_CASE("sbatch runs a script that starts ranks on two nodes, twice") {
  if (!can_start({"slurmctld", "slurmd", "srun", "sbatch", "munged"})) return;
  const slurm_cluster slurm;
  std::ofstream(slurm.home() / "batch")
      << "#!/bin/sh\nsrun -n 4 --mpi=pmi2 $program\nsrun -n 3 --mpi=pmi2 $program\ntouch ended\n";
  const outcome ran = slurm.run(
      "export program\nsbatch -N2 -n4 -o out batch\nuntil [ -e ended ]; do sleep 0.1; done");
  CAPTURE(ran.text);
  CHECK(ran.status == 0);
  const std::string text = text_of(slurm.home() / "out");
  CAPTURE(text);
  strings twice = all_names();
  twice.insert(twice.end(), all_names().begin(), all_names().end());
  CHECK(names_in(text) == twice);
}

TEST_CASE("a rank that works until it is ended" * doctest::skip()) {
  const int status = colls::run([](colls::world& world) -> colls::task<> {
    for (int sum = 1;; sum = 1) co_await world.all_reduce(std::span(&sum, 1));
  });
  CHECK(status == 0);
}

TEST_CASE("a rank of a step is killed: the others name it, and the step ends") {
  if (!can_start({"slurmctld", "slurmd", "srun", "sbatch", "munged"})) return;
  const slurm_cluster slurm;
  const std::string program = "exec $self --no-skip '-tc=a rank that works until it is ended'";
  std::ofstream(slurm.home() / "rank") << "[ $SLURM_PROCID = 2 ] && { (sleep 2; kill -9 $$) & }\n"
                                       << program << '\n';
  const outcome ran =
      slurm.run("export self\nsrun -N2 -n4 --mpi=pmi2 --kill-on-bad-exit=0 sh rank");
  CAPTURE(ran.text);
  CHECK(ran.status != 0);
  CHECK(ran.status != 124);
  CHECK(count(ran.text, "peer_failed: rank 2 ") == 3);
}

TEST_CASE("a step with fewer tasks than its variables say ends when its ranks have waited") {
  if (!can_start({"slurmctld", "slurmd", "srun", "sbatch", "munged"})) return;
  const slurm_cluster slurm;
  const double began = now();
  const outcome ran =
      slurm.run("srun -N2 -n2 --mpi=pmi2 env SLURM_STEP_NUM_TASKS=3 COLLS_JOIN_TIMEOUT=2 $program");
  CAPTURE(ran.text);
  CHECK(ran.status != 0);
  CHECK(now() - began < 20);
  CHECK(ran.text.find("still waiting for rank 2 of 3") != std::string::npos);
}

TEST_CASE("mpirun of Open MPI starts ranks on three hosts, without an address or a secret") {
  if (!can_start({"ip", "mpirun.openmpi"})) return;
  const three_hosts hosts;
  const std::string start =
      "mpirun.openmpi --allow-run-as-root --oversubscribe --mca plm_rsh_agent " + hosts.agent() +
      " --mca oob_tcp_if_include eth0 --host 10.78.0.1:2,10.78.0.2:2,10.78.0.3:1 -n 5 ";
  check_all(hosts.run(start + "$program < /dev/null"));
  const outcome lost = hosts.run(start + "env -u PMIX_NAMESPACE $program < /dev/null");
  CAPTURE(lost.text);
  CHECK(lost.status != 0);
  CHECK(lost.text.find("MASTER_ADDR") != std::string::npos);
}

TEST_CASE("mpiexec starts ranks on three hosts, without an address or a secret") {
  if (!can_start({"ip", "mpiexec.hydra"})) return;
  const three_hosts hosts;
  const std::string start = "mpiexec.hydra -iface eth0 -launcher ssh -launcher-exec " +
                            hosts.agent() + " -hosts 10.78.0.1:2,10.78.0.2:2,10.78.0.3:1 -n 5 ";
  check_all(hosts.run(start + "$program < /dev/null"));
  // Without its descriptor, a rank says what to do.
  const outcome closed = hosts.run(start + "env PMI_FD=99 $program < /dev/null");
  CAPTURE(closed.text);
  CHECK(closed.status != 0);
  CHECK(closed.text.find("MASTER_ADDR") != std::string::npos);
}
