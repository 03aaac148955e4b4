// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Implementation of key_value_space.hpp: the lock.

#include <colls/base/compiler.hpp>
#include <colls/bootstrap/fixed_string.hpp>
#include <colls/bootstrap/key_value_space.hpp>

namespace colls::detail {

COLLS_ONCE std::unique_ptr<manager_lock> manager_lock::try_acquire(manager_connection& wanted,
                                                                   const char* name) {
  const std::lock_guard lock(wanted.mutex);
  if (wanted.process != 0 && wanted.process != ::getpid()) {
    raise(errc::join_failed,
          "this process was forked from a rank, and cannot use the process manager of that rank "
          "(%s)",
          name);
  }
  if (wanted.is_used) return nullptr;
  if (wanted.is_pending) {
    raise(errc::join_failed,
          "an earlier join failed while it used %s, which cannot be used again; %s", name,
          without_process_manager);
  }
  std::unique_ptr<manager_lock> acquired(new manager_lock(wanted, wanted.joins + 1));
  wanted.process = ::getpid();
  wanted.is_used = true;
  ++wanted.joins;
  return acquired;
}

COLLS_ONCE task<std::unique_ptr<manager_lock>> manager_lock::acquire(manager_connection& wanted,
                                                                     std::string name,
                                                                     scheduler& driver,
                                                                     time_point deadline) {
  for (;;) {
    auto acquired = try_acquire(wanted, name.c_str());
    if (acquired != nullptr) co_return std::move(acquired);
    if (driver.now() >= deadline) {
      raise(errc::join_timeout, "another join that uses %s has not ended", name.c_str());
    }
    co_await driver.sleep_until(driver.now() + milliseconds);
  }
}

}  // namespace colls::detail
