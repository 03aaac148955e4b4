// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// system_call: functions that interpret the errors of system calls, and a function that repeats
// system calls interrupted by signals.

#include <colls/base/error.hpp>

#include <cerrno>

namespace colls::detail {

/// Makes a system call, and repeats it as long as a signal interrupts it. Returns the result of the
/// last attempt.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// Returns the error of the last system call of this thread (errno).
inline std::error_code last_error() { return {errno, std::generic_category()}; }
/// Returns true if the system call that has just failed would have blocked or was interrupted by a
/// signal. Must be called only after a system call has failed.
inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// Returns whether the errno value `error` means that a limit on descriptors or memory has been
/// reached.
inline bool is_resource_exhausted(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace colls::detail
