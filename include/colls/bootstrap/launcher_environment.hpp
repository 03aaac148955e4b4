// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What the launcher said, read from its variables: the innermost launcher wins.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/environment_variables.hpp>

namespace colls {

namespace detail {

class launcher_reader {
 public:
  explicit launcher_reader(const variables& all) : env_(all) {}

  config read();

 private:
  void read_common();

  /// Both or neither: a launcher that says one only is no launcher to guess about.
  void read_pair(const char* rank, const char* size);

  void read_colls();

  void read_torchrun();

  void read_mpi(const char* who, const char* rank, const char* size, const char* local_rank,
                const char* local_size);

  void read_slurm();

  // MASTER_ADDR and a port; false: there is no MASTER_ADDR.
  bool use_master();

  // On one host without an address: a file in a directory that belongs to this user and this job.
  void use_own_file(std::string job);

  void check() const;

  variables env_;
  config cfg_;
  int port_ = -1;
  const char* rank_name_ = "rank";
  const char* size_name_ = "size";
};

/// A variable of this process, or null; also the secret that was hidden from its children.
const char* process_variable(const char* name);
/// COLLS_SECRET has no value for the programs that this process starts from now on. It moves no
/// other variable, so it needs what getenv needs: that no thread changes the environment meanwhile.
void hide_secret_from_children();

}  // namespace detail

/// What the launcher of this process says; `look(name)` gives a variable's value or null. Throws
/// `join_failed`, naming the variables, where what it says is incomplete or contradicts itself.
/// Without a launcher: a world of one.
template <class Look>
config environment(const Look& look) {
  const auto call = [](void* context, const char* name) -> const char* {
    return (*static_cast<const Look*>(context))(name);
  };
  const detail::variables all{call, const_cast<void*>(static_cast<const void*>(&look))};
  return detail::launcher_reader(all).read();
}

/// The same from this process's environment.
inline config environment() {
  return environment([](const char* name) { return detail::process_variable(name); });
}

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/launcher_environment.ipp>
#endif
