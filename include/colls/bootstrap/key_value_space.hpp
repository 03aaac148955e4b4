// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// key_value_space: the key-value space of a process manager, such as mpiexec or srun.

#include <colls/coroutine/task.hpp>

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

}  // namespace colls::detail
