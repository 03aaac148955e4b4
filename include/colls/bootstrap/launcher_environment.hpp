// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Functions that read a config from the environment variables of a launcher, such as torchrun,
// mpirun or srun. If several launchers have set variables, the functions use the variables of the
// launcher that comes first in this list: colls-run, torchrun, Open MPI, PMI, Slurm.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/environment_variables.hpp>

namespace colls {

namespace detail {

class launcher_environment_reader {
 public:
  explicit launcher_environment_reader(const variables& env) : env_(env) {}

  config read();

 private:
  void read_common();

  // Reads the rank of this process and the size of the world from two environment variables.
  // `rank` and `size` are the names of the variables. Throws if a variable is not set.
  void read_pair(const char* rank, const char* size);

  void read_colls();

  void read_torchrun();

  void read_mpi(const char* launcher, const char* rank, const char* size, const char* local_rank,
                const char* local_size);

  void read_slurm();

  // Reads how often the launcher has started all ranks again, and how often it may, if one of these
  // environment variables is set.
  void read_restarts(const char* count, const char* max);

  // Sets the address of the store to the host in MASTER_ADDR and the port in COLLS_PORT or
  // MASTER_PORT. Returns false if MASTER_ADDR is not set. Throws if MASTER_ADDR is set but the port
  // is not.
  bool use_master();

  // Returns whether the variables of PMI are those of srun (--mpi=pmi2), not of mpiexec within a
  // step.
  bool is_pmi_of_slurm() const;

  // Sets the address to the descriptor by which this process reaches its process manager. Returns
  // false if the process manager has left none.
  bool use_pmi();

  // Sets the address to PMIx. Returns false if the process manager does not speak it.
  bool use_pmix();

  // Sets the address of the store to the path of a file. Only the job `job` of this user uses the
  // directory that contains the file. The callers use this function if all ranks run on one machine
  // and the launcher gives no address for the store.
  void use_own_file(std::string job);

  void check() const;

  variables env_;
  config cfg_;
  int port_ = -1;
  const char* rank_name_ = "rank";
  const char* size_name_ = "size";
};

/// Returns the value of the environment variable `name`, or null if the variable is not set.
/// Returns the original value of COLLS_SECRET even after a call of `hide_secret_from_children`.
const char* process_variable(const char* name);
/// Empties COLLS_SECRET in the environment, so that programs started by this process do not inherit
/// the secret. During the call, other threads may read other variables, because the call does not
/// move the entries of these variables in memory. Other threads must not change the environment
/// during the call.
void hide_secret_from_children();

}  // namespace detail

/// Returns the config that the variables of the launcher describe. If there is no launcher, returns
/// the config of a world of one rank. `lookup(name)` must return the value of the variable `name`,
/// or null if this variable is not set. Throws `join_failed` if the variables are incomplete or
/// contradictory. The error message names these variables.
template <class Lookup>
config environment(const Lookup& lookup) {
  const auto call = [](void* context, const char* name) -> const char* {
    return (*static_cast<const Lookup*>(context))(name);
  };
  const detail::variables env{call, const_cast<void*>(static_cast<const void*>(&lookup))};
  return detail::launcher_environment_reader(env).read();
}

/// Returns the config that the environment of this process describes.
inline config environment() {
  return environment([](const char* name) { return detail::process_variable(name); });
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/launcher_environment.ipp>
#endif
