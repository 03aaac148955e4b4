// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Reading a config from the variables of the launcher. With nested launchers the innermost counts.

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

  // Throws unless both are set.
  void read_pair(const char* rank, const char* size);

  void read_colls();

  void read_torchrun();

  void read_mpi(const char* launcher, const char* rank, const char* size, const char* local_rank,
                const char* local_size);

  void read_slurm();

  // Takes the address from MASTER_ADDR and a port. Returns false if there is no MASTER_ADDR.
  bool use_master();

  // For ranks of one host without an address: a file in a directory of this user and this job.
  void use_own_file(std::string job);

  void check() const;

  variables env_;
  config cfg_;
  int port_ = -1;
  const char* rank_name_ = "rank";
  const char* size_name_ = "size";
};

/// Returns a variable of this process, or null. COLLS_SECRET is found also after
/// `hide_secret_from_children`.
const char* process_variable(const char* name);
/// Empties COLLS_SECRET in the environment, so programs that this process starts do not inherit it.
/// It does not move other variables: as with getenv, no other thread may change the environment
/// meanwhile.
void hide_secret_from_children();

}  // namespace detail

/// Returns the config that the launcher's variables describe; a world of one without a launcher.
/// `lookup(name)` returns the value of a variable or null. Throws `join_failed` and names the
/// variables if they are incomplete or contradictory.
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
