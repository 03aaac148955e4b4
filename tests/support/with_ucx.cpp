// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Adds UCX to the tests of faults that are linked with this file, and counts what it moves.
#include <colls/transport/ucx.hpp>

#include "../fault/processes.hpp"
#include "ucx_leaks.hpp"

namespace {

const bool is_counted = [] {
  processes::count_messages = [] { return colls::ucx::counted_traffic().messages_sent; };
  return true;
}();

}  // namespace
