// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/interprocess: a part of source.hpp, for programs that compile colls separately. Compiles
// the communicator whose ranks are processes.

#include <colls/interprocess.hpp>
#include <colls/world.hpp>

COLLS_COMMUNICATOR(, colls::interprocess_transport)
