// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// revoke_on_exception: revokes a communicator after the main function of this rank has thrown an
// exception. The operations on the communicator then fail on all ranks.

#include <colls/call/communicator.hpp>

#include <exception>

namespace colls::detail {

/// Returns the text of the exception that is being handled.
inline std::string exception_text() {
  try {
    throw;
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "a rank's main threw something that is no std::exception";
  }
}
/// Revokes the communicator, so that the peers do not wait for this rank. Must be called in an
/// exception handler. The text of the handled exception becomes the reason for the revocation.
/// Returns this text.
template <class Transport>
std::string revoke_on_exception(communicator<Transport>& comm) {
  std::string reason = exception_text();
  if (comm) comm.revoke(reason.c_str());
  return reason;
}

}  // namespace colls::detail
