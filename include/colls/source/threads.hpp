// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/threads: compiles the communicator of ranks that are threads.

#include <colls/threads.hpp>

COLLS_COMMUNICATOR(, colls::thread_transport)
