// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// key_value_space: the key-value space of a process manager, such as mpiexec or srun, and the lock
// by which one join at a time uses it.

#include <colls/coroutine/scheduler.hpp>
#include <colls/coroutine/task.hpp>

#include <sys/types.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <string>

namespace colls::detail {

/// The key-value space of the job that a process manager has started. The functions throw
/// `join_failed` if the process manager refuses, and `join_timeout` if it does not answer in time.
class key_value_space {
 public:
  key_value_space() = default;
  key_value_space(const key_value_space&) = delete;
  key_value_space& operator=(const key_value_space&) = delete;
  virtual ~key_value_space() = default;

  /// Counts the objects that this process has made for the job, from 1.
  virtual int number() const = 0;
  /// Stores a value, which the other ranks can read after the next `fence`. Neither text may
  /// contain spaces, semicolons or equals signs.
  virtual task<> put(std::string key, std::string value) = 0;
  /// Waits until all ranks of the job have called `fence`.
  virtual task<> fence() = 0;
  /// Returns the value that rank 0 has stored for the key.
  virtual task<std::string> get(std::string key) = 0;
};

/// The end of an error message: what to do without a process manager.
inline constexpr const char* without_process_manager =
    "pass MASTER_ADDR, MASTER_PORT and COLLS_SECRET_FILE, and the ranks do without it";

/// A connection of this process to its process manager, which joins use one after another.
struct manager_connection {
  std::mutex mutex;
  pid_t process = 0;        // which uses it, or 0
  bool is_used = false;     // by a join
  bool is_pending = false;  // an answer has not come
  int joins = 0;            // that have used it
};

/// The lock of one join on a connection.
class manager_lock {
 public:
  manager_lock(const manager_lock&) = delete;
  manager_lock& operator=(const manager_lock&) = delete;
  ~manager_lock() {
    const std::lock_guard lock(used_.mutex);
    used_.is_used = false;
  }

  /// Waits until no other join uses the connection. `name` names it in errors. Throws `join_failed`
  /// if a process that was forked from a rank calls this function, or if an earlier join has failed
  /// while it waited for an answer, which would come as the answer to another question.
  static task<std::unique_ptr<manager_lock>> acquire(manager_connection& wanted, std::string name,
                                                     scheduler& driver, time_point deadline);

  /// Counts the locks on this connection from 1.
  int number() const { return number_; }
  /// Sets whether this rank waits for an answer.
  void set_pending(bool is_pending) { used_.is_pending = is_pending; }

 private:
  manager_lock(manager_connection& used, int number) : used_(used), number_(number) {}

  // Returns null if another join uses the connection.
  static std::unique_ptr<manager_lock> try_acquire(manager_connection& wanted, const char* name);

  manager_connection& used_;
  int number_;
};

}  // namespace colls::detail

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/key_value_space.ipp>
#endif
