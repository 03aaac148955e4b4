// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// pmix_client: a client of a process manager that speaks PMIx, such as Open MPI's mpirun and srun.
// It opens the library of PMIx while the program runs, so no program is linked with it.

#include <colls/bootstrap/key_value_space.hpp>
#include <colls/coroutine/scheduler.hpp>

#include <memory>
#include <string>
#include <utility>

namespace colls::detail {

/// A client of PMIx. The first one initialises PMIx, which counts its users, so MPI can use the
/// same library, too. The process finalises it when it exits. The calls that initialise PMIx and
/// store a value ask only the daemon of this host. PMIx limits how long they take, not
/// `join_timeout`.
class pmix_client final : public key_value_space {
 public:
  /// Opens the library (libpmix.so.2, or one that the program contains) and initialises it, when no
  /// other join uses it. Throws `join_failed` if there is none, if no process manager answers, or
  /// if PMIx knows this process by another rank than `rank`.
  static task<std::unique_ptr<key_value_space>> open(scheduler& driver, int rank,
                                                     time_point deadline);

  int number() const override { return lock_->number(); }
  task<> put(std::string key, std::string value) override;
  task<> fence() override;
  task<std::string> get(std::string key) override;

 private:
  struct library;
  struct answer;

  pmix_client(scheduler& driver, library& opened, std::unique_ptr<manager_lock> lock,
              time_point deadline)
      : driver_(driver), library_(opened), lock_(std::move(lock)), deadline_(deadline) {}

  static library& shared();
  // Waits for the callback of a call. Logs a warning after 30 s.
  task<> wait_for(std::shared_ptr<answer> awaited, const char* call, const char* hint);

  scheduler& driver_;
  library& library_;
  std::unique_ptr<manager_lock> lock_;
  time_point deadline_;
};

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/pmix_client.ipp>
#endif
