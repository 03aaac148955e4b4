// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// system_call: what system calls say of their failures, and calls that signals interrupt.

#include <colls/base/error.hpp>

#include <cerrno>

namespace colls::detail {

/// The result of a system call, made again as long as signals interrupt it.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

/// What the last system call of this thread failed with.
inline std::error_code last_error() { return {errno, std::generic_category()}; }
inline bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// Whether a call failed for want of what this process or the system has only so much of.
inline bool is_lack(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace colls::detail
