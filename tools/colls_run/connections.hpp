// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The launcher's ends of its connections to the guard and to the local ranks.

#include <colls/driver/socket.hpp>

#include <sys/types.h>

#include <chrono>
#include <vector>

namespace launcher {

struct connections {
  std::chrono::steady_clock::time_point began;
  pid_t guard = 0;
  colls::detail::descriptor control;                // to the guard
  colls::detail::descriptor signals;                // a signalfd
  std::vector<colls::detail::descriptor> out, err;  // by local rank
  colls::detail::descriptor input;                  // of rank 0, if it comes from a terminal
};

}  // namespace launcher
