// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A communicator for exposures without an operation, and whether the kernel lets a process read the
// memory of another process of the same user that is not its child (CMA).

#include <colls/matching/operation_record.hpp>

#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/// The communicator of an exposure that belongs to no operation.
inline colls::communicator_state& unrelated_communicator() {
  static colls::communicator_state state(999, 0, 1, nullptr);
  return state;
}

inline bool kernel_lets_read() {
  int value = 7;
  const pid_t reader = ::fork();
  if (reader == 0) {
    int got = 0;
    const iovec here{&got, sizeof got};
    const iovec there{&value, sizeof value};
    ::_exit(::process_vm_readv(::getppid(), &here, 1, &there, 1, 0) == sizeof got ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(reader, &status, 0) == reader && status == 0;
}
