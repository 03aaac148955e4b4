// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#include <colls/bootstrap/launcher_environment.hpp>

#include <colls/bootstrap/slurm_nodelist.hpp>
#include <colls/os/procfs.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <set>

using colls::config;
using colls::errc;
using namespace std::chrono_literals;

namespace {

using vars = std::map<std::string, std::string>;

config read(const vars& all) {
  return colls::environment([&](const char* name) -> const char* {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  });
}

/// The text of the error that reading these variables throws, or "" if it throws none.
std::string error_text(const vars& all, errc code = errc::join_failed) {
  try {
    read(all);
  } catch (const colls::error& error) {
    CHECK(error.record().code == code);
    return error.record().detail;
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// `all` and the variables of `more`, which replace those of the same name.
vars with(vars all, const vars& more) {
  for (const auto& [name, value] : more) all[name] = value;
  return all;
}
vars without(vars all, const std::string& name) {
  all.erase(name);
  return all;
}

const vars colls_run{{"COLLS_RANK", "5"},
                     {"COLLS_WORLD_SIZE", "8"},
                     {"COLLS_LOCAL_RANK", "1"},
                     {"COLLS_LOCAL_WORLD_SIZE", "4"},
                     {"COLLS_NODE_RANK", "1"},
                     {"COLLS_NNODES", "2"},
                     {"COLLS_STORE", "tcp://10.0.0.1:4000"},
                     {"COLLS_JOB", "a-job"},
                     {"COLLS_SECRET", "hush"}};
const vars torchrun{{"RANK", "3"},
                    {"WORLD_SIZE", "4"},
                    {"LOCAL_RANK", "1"},
                    {"LOCAL_WORLD_SIZE", "2"},
                    {"GROUP_RANK", "1"},
                    {"GROUP_WORLD_SIZE", "2"},
                    {"MASTER_ADDR", "host-0"},
                    {"MASTER_PORT", "29500"},
                    {"TORCHELASTIC_RUN_ID", "run"}};
const vars open_mpi{{"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "3"},
                    {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                    {"PMIX_NAMESPACE", "1026621441"},    {"PMIX_RANK", "2"}};
const vars hydra{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const vars slurm{{"SLURM_PROCID", "5"},
                 {"SLURM_NTASKS", "7"},
                 {"SLURM_STEP_NUM_TASKS", "7"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_NODEID", "1"},
                 {"SLURM_STEP_NUM_NODES", "2"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
                 {"SLURM_STEP_NODELIST", "node[003-4]"},
                 {"SLURM_JOB_ID", "1234"},
                 {"SLURM_STEP_ID", "0"}};

}  // namespace

TEST_CASE("without a launcher: alone") {
  const config alone = read({{"HOME", "/root"}, {"COLLS_LOG", "info"}, {"COLLS_TIMEOUT", "5"}});
  CHECK(alone.rank == 0);
  CHECK(alone.size == 1);
  CHECK(alone.source == "no launcher");
  CHECK(alone.timeout == 5s);
}

TEST_CASE("colls-run") {
  const config cfg = read(colls_run);
  CHECK(cfg.rank == 5);
  CHECK(cfg.size == 8);
  CHECK(cfg.local_rank == 1);
  CHECK(cfg.local_size == 4);
  CHECK(cfg.node == 1);
  CHECK(cfg.nodes == 2);
  CHECK(cfg.address == "tcp://10.0.0.1:4000");
  CHECK(cfg.served);
  CHECK(cfg.job == "a-job");
  CHECK(cfg.secret == "hush");
  CHECK(cfg.source == "colls-run");
  CHECK(cfg.join_timeout == 300s);
  CHECK(cfg.timeout == 600s);
  CHECK(!cfg.insecure);
  const config file = read(with(colls_run, {{"COLLS_STORE", "file:///tmp/x"}}));
  CHECK(!file.served);
}

TEST_CASE("torchrun") {
  const config cfg = read(torchrun);
  CHECK(cfg.rank == 3);
  CHECK(cfg.size == 4);
  CHECK(cfg.local_rank == 1);
  CHECK(cfg.local_size == 2);
  CHECK(cfg.node == 1);
  CHECK(cfg.nodes == 2);
  CHECK(cfg.address == "tcp://host-0:29500");
  CHECK(!cfg.served);
  CHECK(cfg.ports.empty());
  CHECK(cfg.job == "run");
  CHECK(cfg.source == "torchrun");
  CHECK(read(with(torchrun, {{"MASTER_ADDR", "::1"}})).address == "tcp://[::1]:29500");
  CHECK(read(with(torchrun, {{"MASTER_ADDR", "[::1]"}})).address == "tcp://[::1]:29500");
  CHECK(read(with(torchrun, {{"COLLS_PORT", "4001"}})).address == "tcp://host-0:4001");
}

TEST_CASE("how often the launcher has started all ranks again") {
  const vars elastic =
      with(torchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}, {"TORCHELASTIC_MAX_RESTARTS", "5"}});
  const vars own = {{"COLLS_RESTART_COUNT", "1"}, {"COLLS_MAX_RESTARTS", "3"}};
  CHECK(read(torchrun).restarts == 0);
  CHECK(read(elastic).restarts == 2);
  CHECK(read(elastic).max_restarts == 5);
  CHECK(read(elastic).job == "run");
  CHECK(read(with(colls_run, own)).restarts == 1);
  CHECK(read(with(open_mpi, own)).max_restarts == 3);
  CHECK(contains(error_text(with(colls_run, {{"COLLS_RESTART_COUNT", "x"}})),
                 "COLLS_RESTART_COUNT=x is no number"));
}

TEST_CASE("where torchrun's agent keeps MASTER_PORT, ports are derived, the same on every rank") {
  const vars agent = with(torchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  const config one = read(agent);
  const config other = read(with(agent, {{"RANK", "0"}, {"LOCAL_RANK", "0"}}));
  CHECK(one.ports == other.ports);
  CHECK(one.ports.size() >= 8);
  const std::set<int> distinct(one.ports.begin(), one.ports.end());
  CHECK(distinct.size() == one.ports.size());
  for (const int port : one.ports) {
    CHECK(port > 1024);
    CHECK(port < 32768);
    CHECK(port != 29500);
  }
  CHECK(read(with(agent, {{"TORCHELASTIC_RUN_ID", "else"}})).ports != one.ports);
  CHECK(read(with(agent, {{"MASTER_PORT", "29501"}})).ports != one.ports);
  const config fixed = read(with(agent, {{"COLLS_PORT", "4001"}}));
  CHECK(fixed.ports.empty());
  CHECK(fixed.address == "tcp://host-0:4001");
}

TEST_CASE("Open MPI and MPICH on one host meet at a file that belongs to user and job") {
  const config cfg = read(open_mpi);
  CHECK(cfg.rank == 2);
  CHECK(cfg.size == 3);
  CHECK(cfg.local_rank == 2);
  CHECK(cfg.local_size == 3);
  CHECK(cfg.own_file);
  const std::string user = std::to_string(::geteuid());
  const std::string of_user = "/run/user/" + user;
  const std::string parent = colls::detail::is_own_directory(of_user) ? of_user : "/tmp";
  const std::string place = "file://" + parent + "/colls-" + user + "-";
  CHECK(cfg.address == place + "1026621441/store");
  const config other = read(with(open_mpi, {{"PMIX_NAMESPACE", "prterun-vm-12@1"}}));
  CHECK(other.address == place + "prterun-vm-12_1/store");
  const config mpich = read(hydra);
  CHECK(mpich.rank == 1);
  CHECK(mpich.size == 2);
  CHECK(mpich.local_rank == 1);
  CHECK(mpich.own_file);
  CHECK(contains(mpich.address.str(), std::to_string(::getppid()) + "-"));
  const config master =
      read(with(open_mpi, {{"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "4002"}}));
  CHECK(master.address == "tcp://10.0.0.7:4002");
  CHECK(!master.own_file);
}

TEST_CASE("mpirun across hosts without a process manager says what to pass") {
  const std::string text =
      error_text(with(without(open_mpi, "PMIX_RANK"),
                      {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}}));
  CHECK(contains(text, "MASTER_ADDR"));
  CHECK(contains(text, "MASTER_PORT"));
  CHECK(contains(text, "COLLS_SECRET_FILE"));
  CHECK(contains(text, "3 ranks"));
  CHECK(contains(error_text(without(without(hydra, "MPI_LOCALNRANKS"), "MPI_LOCALRANKID")),
                 "MASTER_ADDR"));
}

TEST_CASE("Slurm") {
  const config cfg = read(slurm);
  CHECK(cfg.rank == 5);
  CHECK(cfg.size == 7);
  CHECK(cfg.local_rank == 1);
  CHECK(cfg.local_size == 3);
  CHECK(cfg.node == 1);
  CHECK(cfg.nodes == 2);
  CHECK(cfg.job == "1234.0");
  CHECK(cfg.address == "tcp://node003:" + std::to_string(61440 + 1234 % 4096));
  const config one = read(with(
      slurm,
      {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_NODEID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "7"}}));
  CHECK(one.own_file);
  CHECK(contains(one.address.str(), "1234.0"));
  CHECK(read(with(slurm, {{"PMIX_RANK", "5"}})).rank == 5);
  CHECK(read(with(slurm, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}})).address == "tcp://h:1");
}

TEST_CASE("ranks on several hosts meet by the process manager, unless an address is given") {
  const vars hosts = with(hydra, {{"PMI_SIZE", "4"}, {"PMI_FD", "6"}});
  CHECK(read(hosts).address == "pmi://6");
  CHECK(read(hosts).source == "mpiexec (PMI)");
  CHECK(read(with(hosts, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}})).address == "tcp://h:1");
  CHECK(contains(error_text(without(hosts, "PMI_FD")), "MASTER_ADDR"));
  CHECK(contains(error_text(with(hosts, {{"PMI_FD", "x"}})), "PMI_FD=x"));
  CHECK(read(with(hydra, {{"PMI_FD", "6"}})).own_file);
  // srun --mpi=pmi2 sets variables of PMI, too.
  const vars step = with(slurm, {{"PMI_FD", "11"}, {"PMI_RANK", "5"}, {"PMI_SIZE", "7"}});
  CHECK(read(step).source == "Slurm's srun");
  CHECK(read(step).address == "pmi://11");
  CHECK(read(step).local_size == 3);
  CHECK(read(with(step, {{"COLLS_SECRET", "s"}})).address.str().starts_with("tcp://node003:"));
  // PMIx, of Open MPI and of srun --mpi=pmix.
  const vars by_pmix = with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "5"}});
  CHECK(read(by_pmix).address == "pmix://");
  CHECK(read(with(by_pmix, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}})).address == "tcp://h:1");
  CHECK(contains(error_text(without(by_pmix, "PMIX_NAMESPACE")), "MASTER_ADDR"));
  CHECK(read(open_mpi).own_file);
  const vars pmix_step = with(slurm, {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.1.0"}});
  CHECK(read(pmix_step).address == "pmix://");
  CHECK(read(pmix_step).source == "Slurm's srun");
  // mpiexec in a step: its ranks have the variables of the step's task.
  CHECK(read(with(slurm, with(hydra, {{"SLURM_PROCID", "1"}}))).source == "mpiexec (PMI)");
}

TEST_CASE("a batch script of Slurm is neither a rank nor a world of one") {
  const std::string text = error_text({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  CHECK(contains(text, "SLURM_NTASKS=4"));
  CHECK(contains(text, "srun"));
  CHECK(contains(error_text(with(slurm, {{"SLURM_STEP_ID", "4294967291"}})), "srun"));
  CHECK(contains(error_text({{"SLURM_NTASKS", "4"}}), "srun"));
  CHECK(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).size == 1);
}

TEST_CASE("Kubernetes' index is a rank if the other variables are set") {
  const config cfg = read({{"JOB_COMPLETION_INDEX", "2"},
                           {"WORLD_SIZE", "4"},
                           {"MASTER_ADDR", "job-0.svc"},
                           {"MASTER_PORT", "29500"}});
  CHECK(cfg.rank == 2);
  CHECK(cfg.size == 4);
  CHECK(cfg.source == "Kubernetes");
  CHECK(read({{"JOB_COMPLETION_INDEX", "2"}}).size == 1);
}

TEST_CASE("the innermost launcher wins") {
  vars all;
  for (const vars& launcher : {slurm, hydra, open_mpi, torchrun, colls_run}) {
    all = with(all, launcher);
  }
  CHECK(read(all).source == "colls-run");
  for (const auto& [name, value] : colls_run) all.erase(name);
  CHECK(read(all).source == "torchrun");
  for (const auto& [name, value] : torchrun) all.erase(name);
  CHECK(read(all).source == "Open MPI's mpirun");
  for (const auto& [name, value] : open_mpi) all.erase(name);
  CHECK(read(all).source == "mpiexec (PMI)");
  for (const auto& [name, value] : hydra) all.erase(name);
  CHECK(read(all).source == "Slurm's srun");
}

TEST_CASE("incomplete variables of the innermost launcher are an error that names the variable") {
  const struct {
    vars all;
    const char* missing;
  } cases[] = {
      {without(colls_run, "COLLS_RANK"), "COLLS_RANK is not set"},
      {without(colls_run, "COLLS_WORLD_SIZE"), "COLLS_WORLD_SIZE is not set"},
      {without(colls_run, "COLLS_STORE"), "COLLS_STORE"},
      {{{"COLLS_STORE", "tcp://h:1"}}, "COLLS_RANK is not set"},
      {without(torchrun, "RANK"), "RANK is not set"},
      {without(torchrun, "WORLD_SIZE"), "WORLD_SIZE is not set"},
      {without(torchrun, "MASTER_ADDR"), "MASTER_ADDR is not set"},
      {without(torchrun, "MASTER_PORT"), "MASTER_PORT"},
      {without(open_mpi, "OMPI_COMM_WORLD_RANK"), "OMPI_COMM_WORLD_RANK is not set"},
      {without(open_mpi, "OMPI_COMM_WORLD_SIZE"), "OMPI_COMM_WORLD_SIZE is not set"},
      {without(hydra, "PMI_SIZE"), "PMI_SIZE is not set"},
      {{{"PMIX_RANK", "1"}}, "PMIX_RANK=1"},
      {{{"MASTER_ADDR", "h"}}, "RANK and WORLD_SIZE"},
      {{{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK is not set"},
      {without(slurm, "SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST"},
  };
  for (const auto& it : cases) {
    const std::string text = error_text(it.all);
    CHECK_MESSAGE(contains(text, it.missing), it.missing, ": ", text);
    const std::string beside = error_text(with(slurm, it.all));
    if (!it.all.contains("SLURM_PROCID") && !it.all.contains("PMIX_RANK") && it.all.size() > 1) {
      CHECK_MESSAGE(contains(beside, it.missing), "beside Slurm: ", beside);
    }
  }
}

TEST_CASE("contradictions and nonsense are errors that name the variable") {
  CHECK(contains(error_text(with(torchrun, {{"RANK", "4"}})), "rank 4 of 4"));
  CHECK(contains(error_text(with(torchrun, {{"RANK", "4"}})), "WORLD_SIZE=4"));
  CHECK(contains(error_text(with(torchrun, {{"LOCAL_RANK", "2"}})), "local rank 2 of 2"));
  CHECK(contains(error_text(with(torchrun, {{"LOCAL_WORLD_SIZE", "9"}})), "local size 9"));
  CHECK(contains(error_text(with(torchrun, {{"GROUP_RANK", "2"}})), "node 2 of 2"));
  CHECK(contains(error_text({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0"));
  for (const char* bad : {"-1", "x", "1x", " 1", "1.5", "0x1", "99999999999999999999"}) {
    CHECK(contains(error_text(with(torchrun, {{"RANK", bad}})), "RANK="));
    CHECK(contains(error_text(with(torchrun, {{"MASTER_PORT", bad}})), "MASTER_PORT="));
  }
  CHECK(contains(error_text(with(torchrun, {{"MASTER_PORT", "65536"}})), "MASTER_PORT=65536"));
  CHECK(contains(error_text(with(torchrun, {{"MASTER_PORT", "0"}})), "MASTER_PORT"));
  CHECK(contains(error_text({{"COLLS_PORT", "70000"}}), "COLLS_PORT=70000"));
}

TEST_CASE("times and switches") {
  const auto timeout = [](const char* text) { return read({{"COLLS_TIMEOUT", text}}).timeout; };
  CHECK(timeout("30") == 30s);
  CHECK(timeout("1.5s") == 1500ms);
  CHECK(timeout("500ms") == 500ms);
  CHECK(timeout("10min") == 600s);
  CHECK(timeout("2m") == 120s);
  CHECK(timeout("2h") == 7200s);
  CHECK(read({{"COLLS_JOIN_TIMEOUT", "7"}}).join_timeout == 7s);
  for (const char* bad : {"x", "-1", "0", "5 apples", "nan", "inf", "1e300"}) {
    CHECK(contains(error_text({{"COLLS_TIMEOUT", bad}}), "COLLS_TIMEOUT="));
  }
  CHECK(read({{"COLLS_INSECURE", "1"}}).insecure);
  CHECK(!read({{"COLLS_INSECURE", "0"}}).insecure);
  CHECK(contains(error_text({{"COLLS_INSECURE", "maybe"}}), "COLLS_INSECURE=maybe"));
  CHECK(read({{"COLLS_CHECKSUM", "1"}}).checksum);
  CHECK(!read({{"COLLS_CHECKSUM", "0"}}).checksum);
  CHECK(contains(error_text({{"COLLS_CHECKSUM", "maybe"}}), "COLLS_CHECKSUM=maybe"));
}

TEST_CASE("the secret comes from a file that no other user can read") {
  char path[] = "/tmp/colls-test-secret-XXXXXX";
  ::close(::mkstemp(path));
  std::ofstream(path) << "from a file\n";
  CHECK(read(with(torchrun, {{"COLLS_SECRET_FILE", path}})).secret == "from a file");
  CHECK(contains(error_text({{"COLLS_SECRET_FILE", path}, {"COLLS_SECRET", "too"}}), "both"));
  for (const unsigned mode : {0640U, 0604U, 0620U, 0666U}) {
    ::chmod(path, mode);
    const std::string text = error_text({{"COLLS_SECRET_FILE", path}}, errc::auth_failed);
    CHECK(contains(text, "chmod 600"));
    CHECK(!contains(text, "from a file"));
  }
  ::chmod(path, 0600);
  std::ofstream(path, std::ios::trunc) << " \n";
  CHECK(contains(error_text({{"COLLS_SECRET_FILE", path}}), "empty"));
  ::unlink(path);
  CHECK(contains(error_text({{"COLLS_SECRET_FILE", path}}), path));
}

TEST_CASE("a value that is too long is an error, and a secret is not quoted") {
  const std::string text = error_text({{"COLLS_SECRET", std::string(2000, 's')}});
  CHECK(contains(text, "COLLS_SECRET"));
  CHECK(!contains(text, "sss"));
  CHECK(read({{"COLLS_SECRET", std::string(1023, 's')}}).secret.size() == 1023);
  CHECK(
      contains(error_text({{"COLLS_JOB", std::string(300, 'j')}}, errc::invalid_argument), "300"));
}

TEST_CASE("lists of hosts and tasks") {
  using colls::detail::expand_nodelist;
  using list = std::vector<std::string>;
  CHECK(expand_nodelist("node[003-7,9]") ==
        list{"node003", "node004", "node005", "node006", "node007", "node9"});
  CHECK(expand_nodelist("node[008-011]") == list{"node008", "node009", "node010", "node011"});
  CHECK(expand_nodelist("a,b[1,3]c,d") == list{"a", "b1c", "b3c", "d"});
  CHECK(expand_nodelist("r[0-1]n[1-2]") == list{"r0n1", "r0n2", "r1n1", "r1n2"});
  CHECK(expand_nodelist("host-1.example.org") == list{"host-1.example.org"});
  CHECK(expand_nodelist("node[0-999999999]", 3).size() == 3);
  CHECK(expand_nodelist("a,b,c,d", 3) == list{"a", "b", "c"});
  CHECK(expand_nodelist("r[0-1]n[1-2]", 3) == list{"r0n1", "r0n2", "r1n1"});
  for (const char* bad : {"", "node[1-", "node[]", "node[a-b]", "node[1-2-3]", "node[-3]", ",,"}) {
    CHECK_MESSAGE(expand_nodelist(bad).empty(), bad);
  }
  using colls::detail::tasks_on_node;
  CHECK(tasks_on_node("2(x3),1", 0) == 2);
  CHECK(tasks_on_node("2(x3),1", 2) == 2);
  CHECK(tasks_on_node("2(x3),1", 3) == 1);
  CHECK(tasks_on_node("2(x3),1", 4) == -1);
  CHECK(tasks_on_node("4", 0) == 4);
  CHECK(tasks_on_node("x", 0) == -1);
  CHECK(tasks_on_node("2(y3)", 0) == 2);
  CHECK(tasks_on_node("2(y3)", 1) == -1);
  for (const char* bad : {"-7", "0", "+2", " 2", "3000000000", "99999999999999999999", "2(x-3)",
                          "2(x0)", "2(x-2147483648)", "2(x3000000000)", "2(x", "2(x3"}) {
    CHECK_MESSAGE(tasks_on_node(bad, 0) == -1, bad);
  }
  CHECK(tasks_on_node("1(x1000000000),1", 1'500'000'000) == -1);
}

TEST_CASE("addresses are parsed, and an invalid one is an error") {
  using colls::detail::parse_address;
  using place = colls::detail::store_address;
  CHECK(parse_address("tcp://host:29500").host == "host");
  CHECK(parse_address("tcp://host:29500").port == 29500);
  CHECK(parse_address("tcp://[::1]:80").host == "::1");
  CHECK(parse_address("tcp://[fe80::1%eth0]:80").host == "fe80::1%eth0");
  CHECK(parse_address("file:///tmp/x").kind == place::kind::file);
  CHECK(parse_address("file:///tmp/x").path == "/tmp/x");
  CHECK(parse_address("env://").kind == place::kind::environment);
  CHECK(parse_address("pmi://6").kind == place::kind::pmi);
  CHECK(parse_address("pmi://6").descriptor == 6);
  CHECK(parse_address("pmix://").kind == place::kind::pmi);
  CHECK(parse_address("pmix://").descriptor == -1);
  for (const char* bad :
       {"", "host:80", "http://host:80", "tcp://host", "tcp://:80", "tcp://host:", "tcp://host:x",
        "tcp://host:65536", "tcp://::1:80", "tcp://host:-1", "file://relative", "pmi://",
        "pmix://x", "pmi://x", "pmi://-1", "tcp://[]:80", "tcp://[host:80", "tcp://[[::1]:80"}) {
    CHECK_THROWS_AS_MESSAGE(parse_address(bad), colls::error, bad);
  }
}

TEST_CASE("the launcher is the nearest ancestor without the launcher's variable") {
  using colls::detail::launcher_of;
  const std::string parent = launcher_of(::getpid(), "COLLS_TEST_NO_SUCH_VARIABLE");
  CHECK(parent.starts_with(std::to_string(::getppid()) + "-"));
  CHECK(!parent.ends_with("-0"));
  // A rank under a shell that another shell started: the outer shell's own environment does not
  // have the variable.
  FILE* const rank = ::popen(
      "export COLLS_TEST_RANK=3; sh -c 'sh -c \"sleep 1; true\" & echo $!; wait'; true", "r");
  REQUIRE(rank != nullptr);
  long pid = 0;
  REQUIRE(std::fscanf(rank, "%ld", &pid) == 1);
  const auto shell = static_cast<long>(colls::detail::stat_field(pid, 4));
  CHECK(launcher_of(pid, "COLLS_TEST_NO_SUCH_VARIABLE").starts_with(std::to_string(shell) + "-"));
  const std::string found = launcher_of(pid, "COLLS_TEST_RANK");
  const long launcher = std::strtol(found.c_str(), nullptr, 10);
  CHECK(launcher != shell);
  CHECK((launcher == ::getpid() ||
         colls::detail::stat_field(launcher, 4) == static_cast<std::uint64_t>(::getpid())));
  ::pclose(rank);
}

TEST_CASE("the start time of a process and the boot id come from the kernel") {
  CHECK(colls::detail::start_time_of(::getpid()) > 0);
  CHECK(colls::detail::start_time_of(-5) == 0);
  CHECK(colls::detail::boot_id().size() == 36);
}

TEST_CASE("the job's secret can be hidden from children, and the process still knows it") {
  const auto child_has = [](const std::string& secret) {
    return ::system(("test \"$COLLS_SECRET\" = '" + secret + "'").c_str()) == 0;
  };
  REQUIRE(::setenv("COLLS_SECRET", "between ranks", 1) == 0);
  REQUIRE(::setenv("COLLS_OF_A_TEST", "behind it", 1) == 0);
  // Reading the environment hides nothing yet: a launcher in the program may start the rank later.
  CHECK(colls::environment().secret == "between ranks");
  CHECK(child_has("between ranks"));
  std::vector<const char*> before;
  for (char** entry = environ; *entry != nullptr; ++entry) before.push_back(*entry);
  for (int times = 0; times < 2; ++times) {
    colls::detail::hide_secret_from_children();
    CHECK(child_has(""));
    CHECK(colls::environment().secret == "between ranks");
  }
  // A thread that reads the variables meanwhile misses none of the others: they stay in place.
  std::size_t moved = 0;
  for (std::size_t i = 0; i < before.size(); ++i) moved += environ[i] != before[i] ? 1 : 0;
  CHECK(moved == 1);
  REQUIRE(::setenv("COLLS_SECRET", "another", 1) == 0);
  CHECK(colls::environment().secret == "another");
  CHECK(child_has("another"));
  ::unsetenv("COLLS_OF_A_TEST");
  ::unsetenv("COLLS_SECRET");
}

TEST_CASE("a directory is a user's own if no other user can reach what lies there") {
  char path[] = "/tmp/colls-test-own-XXXXXX";
  REQUIRE(::mkdtemp(path) != nullptr);
  CHECK(colls::detail::is_own_directory(path));
  REQUIRE(::chmod(path, 0710) == 0);
  CHECK(!colls::detail::is_own_directory(path));
  REQUIRE(::rmdir(path) == 0);
  CHECK(!colls::detail::is_own_directory(path));
  REQUIRE(::symlink("/proc/self", path) == 0);
  CHECK(!colls::detail::is_own_directory(path));
  REQUIRE(::unlink(path) == 0);
}
