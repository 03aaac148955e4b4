// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// give_up: what becomes of a communicator when its rank's main ends by an exception.

#include <colls/call/communicator.hpp>

#include <exception>

namespace colls::detail {

/// Inside a handler: what was thrown, in words.
inline std::string words_thrown() {
  try {
    throw;
  } catch (const std::exception& thrown) {
    return thrown.what();
  } catch (...) {
    return "a rank's main threw something that is no std::exception";
  }
}
/// Inside a handler: gives the communicator up for what was thrown, so that nobody waits for this
/// rank. In words.
template <class Transport>
std::string give_up(communicator<Transport>& mine) {
  std::string why = words_thrown();
  if (mine) mine.revoke(why.c_str());
  return why;
}

}  // namespace colls::detail
