// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/interprocess: the part of source.hpp that compiles the communicator whose ranks are
// processes. For programs that compile colls separately.

#include <colls/interprocess.hpp>
#include <colls/world.hpp>

COLLS_COMMUNICATOR(, colls::interprocess_transport)
