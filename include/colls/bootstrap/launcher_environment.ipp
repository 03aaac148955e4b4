// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of launcher_environment.hpp: reading the variables of each launcher.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/bootstrap/slurm_nodelist.hpp>
#include <colls/os/procfs.hpp>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <list>
#include <mutex>

namespace colls::detail {

// The secrets that `hide_secret_from_children` has removed from the environment. They are kept
// forever, because callers of `process_variable` may hold pointers to them.
struct hidden_secrets {
  std::mutex guard;
  std::list<std::string> texts;

  static hidden_secrets& of_this_process() {
    static hidden_secrets secrets;
    return secrets;
  }
};

COLLS_ONCE const char* process_variable(const char* name) {
  const char* const value = std::getenv(name);
  if ((value != nullptr && *value != 0) || std::strcmp(name, "COLLS_SECRET") != 0) return value;
  hidden_secrets& hidden = hidden_secrets::of_this_process();
  const std::lock_guard lock(hidden.guard);
  return hidden.texts.empty() ? value : hidden.texts.back().c_str();
}

COLLS_ONCE void hide_secret_from_children() {
  static char empty[] = "COLLS_SECRET=";
  constexpr std::size_t size = sizeof empty - 1;
  hidden_secrets& hidden = hidden_secrets::of_this_process();
  const std::lock_guard lock(hidden.guard);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, empty, size) != 0 || (*entry)[size] == 0) continue;
    hidden.texts.emplace_back(*entry + size);
    // Other threads may be reading the environment, so this function replaces only this entry.
    // `unsetenv` would move all entries after it.
    std::atomic_ref<char*>(*entry).store(empty, std::memory_order_release);
  }
}

COLLS_ONCE config launcher_environment_reader::read() {
  read_common();
  if (env_.any({"COLLS_RANK", "COLLS_WORLD_SIZE", "COLLS_STORE"})) {
    read_colls();
  } else if (env_.any({"RANK", "WORLD_SIZE"})) {
    read_torchrun();
  } else if (env_.any({"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    read_mpi("Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
             "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE");
  } else if (env_.any({"PMI_RANK", "PMI_SIZE"}) && !is_pmi_of_slurm()) {
    read_mpi("mpiexec (PMI)", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS");
  } else if (env_.any({"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"})) {
    read_slurm();
  } else if (env_.any({"PMIX_RANK"})) {
    raise(errc::join_failed,
          "PMIX_RANK=%s is set and nothing says how many ranks there are: pass RANK, WORLD_SIZE, "
          "MASTER_ADDR and MASTER_PORT",
          env_.get("PMIX_RANK"));
  } else if (env_.any({"MASTER_ADDR"})) {
    raise(errc::join_failed,
          "MASTER_ADDR=%.100s is set, and RANK and WORLD_SIZE are not: set both, or unset it to "
          "run alone",
          env_.get("MASTER_ADDR"));
  } else {
    const config single = config::single();
    cfg_.rank = single.rank;
    cfg_.size = single.size;
    cfg_.source = "no launcher";
  }
  check();
  return std::move(cfg_);
}

COLLS_ONCE void launcher_environment_reader::read_common() {
  cfg_.secret = read_secret(env_);
  cfg_.job = env_.text("COLLS_JOB");
  cfg_.insecure = parse_switch("COLLS_INSECURE", env_.text("COLLS_INSECURE"));
  cfg_.transport = env_.text("COLLS_TRANSPORT");
  cfg_.reads = env_.text("COLLS_READS");
  cfg_.socket_ifname = env_.text("COLLS_SOCKET_IFNAME");
  // The run queue reads this variable. Here only its value is checked.
  (void)parse_switch("COLLS_CHECK_THREADS", env_.text("COLLS_CHECK_THREADS"));
  cfg_.checksum = parse_switch("COLLS_CHECKSUM", env_.text("COLLS_CHECKSUM"));
  if (const char* const text = env_.get("COLLS_TIMEOUT")) {
    cfg_.timeout = parse_duration("COLLS_TIMEOUT", text);
  }
  if (const char* const text = env_.get("COLLS_JOIN_TIMEOUT")) {
    cfg_.join_timeout = parse_duration("COLLS_JOIN_TIMEOUT", text);
  }
  port_ = env_.number("COLLS_PORT", 65535);
  read_restarts("COLLS_RESTART_COUNT", "COLLS_MAX_RESTARTS");
}

COLLS_ONCE void launcher_environment_reader::read_pair(const char* rank, const char* size) {
  rank_name_ = rank;
  size_name_ = size;
  cfg_.rank = env_.number(rank);
  cfg_.size = env_.number(size);
  if (cfg_.rank < 0 || cfg_.size < 0) {
    raise(errc::join_failed, "%s is not set and %s=%s is: %s needs both",
          cfg_.rank < 0 ? rank : size, cfg_.rank < 0 ? size : rank,
          env_.text(cfg_.rank < 0 ? size : rank).c_str(), cfg_.source.c_str());
  }
}

COLLS_ONCE void launcher_environment_reader::read_restarts(const char* count, const char* max) {
  if (!env_.any({count, max})) return;
  cfg_.restarts = std::max(env_.number(count), 0);
  cfg_.max_restarts = std::max(env_.number(max), 0);
}

COLLS_ONCE void launcher_environment_reader::read_colls() {
  cfg_.source = "colls-run";
  read_pair("COLLS_RANK", "COLLS_WORLD_SIZE");
  cfg_.local_rank = env_.number("COLLS_LOCAL_RANK");
  cfg_.local_size = env_.number("COLLS_LOCAL_WORLD_SIZE");
  cfg_.node = env_.number("COLLS_NODE_RANK");
  cfg_.nodes = env_.number("COLLS_NNODES");
  cfg_.launcher = env_.text("COLLS_LAUNCHER");
  cfg_.replacement = std::max(env_.number("COLLS_REPLACEMENT"), 0);
  if (const char* const store = env_.get("COLLS_STORE")) {
    cfg_.address = store;
    cfg_.served = cfg_.address.starts_with("tcp://");
  } else if (cfg_.size > 1 && !use_master()) {
    raise(errc::join_failed,
          "COLLS_WORLD_SIZE=%d and neither COLLS_STORE nor MASTER_ADDR says where the ranks meet",
          cfg_.size);
  }
}

COLLS_ONCE void launcher_environment_reader::read_torchrun() {
  const bool kubernetes =
      env_.get("RANK") == nullptr && env_.get("JOB_COMPLETION_INDEX") != nullptr;
  cfg_.source = kubernetes ? "Kubernetes" : "torchrun";
  read_pair(kubernetes ? "JOB_COMPLETION_INDEX" : "RANK", "WORLD_SIZE");
  cfg_.local_rank = env_.number("LOCAL_RANK");
  cfg_.local_size = env_.number("LOCAL_WORLD_SIZE");
  cfg_.node = env_.number("GROUP_RANK");
  cfg_.nodes = env_.number("GROUP_WORLD_SIZE");
  if (cfg_.size <= 1) return;
  if (!use_master()) {
    raise(errc::join_failed,
          "WORLD_SIZE=%d and MASTER_ADDR is not set: it is the address of rank 0's host",
          cfg_.size);
  }
  const std::string run = env_.text("TORCHELASTIC_RUN_ID");
  if (cfg_.job.empty()) cfg_.job = run;
  read_restarts("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS");
  if (env_.text("TORCHELASTIC_USE_AGENT_STORE") == "True" && port_ < 0) {
    cfg_.ports = derived_ports(run, env_.number("MASTER_PORT", 65535));
  }
}

COLLS_ONCE void launcher_environment_reader::read_mpi(const char* launcher, const char* rank,
                                                      const char* size, const char* local_rank,
                                                      const char* local_size) {
  cfg_.source = launcher;
  read_pair(rank, size);
  cfg_.local_rank = env_.number(local_rank);
  cfg_.local_size = env_.number(local_size);
  if (cfg_.size <= 1 || use_master()) return;
  if (cfg_.local_size != cfg_.size) {
    const bool is_open_mpi = env_.get("OMPI_COMM_WORLD_RANK") != nullptr;
    if (is_open_mpi ? use_pmix() : use_pmi()) return;
    raise(errc::join_failed,
          "%s started %d ranks, %s=%s of them here: across hosts pass (with -x or -genv) "
          "MASTER_ADDR=<host of rank 0>, MASTER_PORT and COLLS_SECRET_FILE",
          launcher, cfg_.size, local_size,
          cfg_.local_size < 0 ? "?" : env_.text(local_size).c_str());
  }
  std::string job = env_.text("PMIX_NAMESPACE");
  if (job.empty()) job = env_.text("OMPI_MCA_ess_base_jobid");
  if (job.empty()) job = launcher_of(::getpid(), rank);
  use_own_file(job);
}

COLLS_ONCE bool launcher_environment_reader::is_pmi_of_slurm() const {
  const char* const task = env_.get("SLURM_PROCID");
  return task != nullptr && env_.text("PMI_RANK") == task && env_.get("MPI_LOCALRANKID") == nullptr;
}

COLLS_ONCE bool launcher_environment_reader::use_pmi() {
  const int descriptor = env_.number("PMI_FD");
  if (descriptor < 0) return false;
  cfg_.address = "pmi://" + std::to_string(descriptor);
  return true;
}

COLLS_ONCE bool launcher_environment_reader::use_pmix() {
  if (env_.get("PMIX_RANK") == nullptr || env_.get("PMIX_NAMESPACE") == nullptr) return false;
  cfg_.address = "pmix://";
  return true;
}

COLLS_ONCE void launcher_environment_reader::read_slurm() {
  cfg_.source = "Slurm's srun";
  const char* const tasks =
      env_.get("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  // Slurm sets SLURM_NTASKS not only in ranks that srun starts, but also in batch scripts and in
  // the shells that salloc starts. In a batch script or such a shell, SLURM_STEP_ID is not set or
  // has more than 8 digits.
  const std::string step = env_.text("SLURM_STEP_ID");
  const bool started = !step.empty() && step.size() < 9 && env_.get("SLURM_PROCID") != nullptr;
  if (!started) {
    if (env_.number(tasks) > 1) {
      raise(errc::join_failed,
            "%s=%s and this process was not started by srun: use srun (or colls-run), or "
            "config::single()",
            tasks, env_.get(tasks));
    }
    cfg_.rank = 0;
    cfg_.size = 1;
    cfg_.source = "no launcher";
    return;
  }
  read_pair("SLURM_PROCID", tasks);
  cfg_.local_rank = env_.number("SLURM_LOCALID");
  cfg_.node = env_.number("SLURM_NODEID");
  cfg_.nodes = env_.number("SLURM_STEP_NUM_NODES");
  if (cfg_.nodes < 0) cfg_.nodes = env_.number("SLURM_NNODES");
  const char* const per_node = env_.get("SLURM_STEP_TASKS_PER_NODE");
  if (per_node != nullptr && cfg_.node >= 0) cfg_.local_size = tasks_on_node(per_node, cfg_.node);
  const std::string job = env_.text("SLURM_JOB_ID") + "." + step;
  if (cfg_.job.empty()) cfg_.job = job;
  if (cfg_.size <= 1 || use_master()) return;
  if (cfg_.nodes == 1) return use_own_file(job);
  // Ranks that have a secret need no process manager.
  if (cfg_.secret.empty() && !cfg_.insecure && (use_pmi() || use_pmix())) return;
  const char* const list = env_.get("SLURM_STEP_NODELIST");
  const auto hosts = list == nullptr ? std::vector<std::string>{} : expand_nodelist(list, 1);
  if (hosts.empty()) {
    raise(errc::join_failed,
          "srun started %d ranks and SLURM_STEP_NODELIST=%.60s names no host: pass MASTER_ADDR "
          "and MASTER_PORT",
          cfg_.size, list == nullptr ? "" : list);
  }
  const auto number =
      static_cast<unsigned long>(std::strtoul(env_.text("SLURM_JOB_ID").c_str(), nullptr, 10) +
                                 std::strtoul(step.c_str(), nullptr, 10));
  const int port = port_ > 0 ? port_ : static_cast<int>(61440 + number % 4096);
  cfg_.address = "tcp://" + host_and_port(hosts.front(), port);
}

COLLS_ONCE bool launcher_environment_reader::use_master() {
  const char* const host = env_.get("MASTER_ADDR");
  if (host == nullptr) return false;
  const int port = port_ > 0 ? port_ : env_.number("MASTER_PORT", 65535);
  if (port <= 0) {
    raise(errc::join_failed, "MASTER_ADDR=%.100s is set and MASTER_PORT (or COLLS_PORT) is not",
          host);
  }
  cfg_.address = "tcp://" + host_and_port(host, port);
  return true;
}

COLLS_ONCE void launcher_environment_reader::use_own_file(std::string job) {
  for (char& c : job) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  }
  // In /tmp, another user could create the directory of this job first. In /run/user/<user id>,
  // only the owner can create directories. Therefore this function uses /run/user/<user id> if this
  // user owns that directory, and uses /tmp only if not.
  const std::string user = std::to_string(::geteuid());
  const std::string runtime = "/run/user/" + user;
  const std::string parent = is_own_directory(runtime) ? runtime : "/tmp";
  cfg_.address = "file://" + parent + "/colls-" + user + "-" + job.substr(0, 100) + "/store";
  cfg_.own_file = true;
  cfg_.nodes = 1;
}

COLLS_ONCE void launcher_environment_reader::check() const {
  const auto compare = [&](const char* quantity, int value, int limit) {
    if (value >= 0 && limit >= 0 && value >= limit) {
      raise(errc::join_failed, "%s: %s %d of %d makes no sense (%s=%d, %s=%d)", cfg_.source.c_str(),
            quantity, value, limit, rank_name_, cfg_.rank, size_name_, cfg_.size);
    }
  };
  compare("rank", cfg_.rank, cfg_.size);
  compare("local rank", cfg_.local_rank, cfg_.local_size);
  compare("node", cfg_.node, cfg_.nodes);
  compare("local size", cfg_.local_size, cfg_.size + 1);
  if (cfg_.size == 0) raise(errc::join_failed, "%s=0: a world has at least one rank", size_name_);
}

}  // namespace colls::detail
