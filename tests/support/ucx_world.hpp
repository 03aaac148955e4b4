// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// All ranks of a world in this process, on one engine, connected by UCX, for tests.

#include <colls/transport/ucx.hpp>

#include "tcp_world.hpp"
#include "ucx_leaks.hpp"

/// A world over UCX on every link. Only the messages of a rank to itself take another way.
class ucx_world : public tcp_world {
 public:
  explicit ucx_world(int size) : tcp_world(size, "ucx_only") {}
};

class checked_ucx_world : public tcp_world {
 public:
  explicit checked_ucx_world(int size) : tcp_world(size, "ucx_only", "", "", true) {}
};
