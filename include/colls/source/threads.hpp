// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/threads: a part of source.hpp, for programs that compile colls separately. Compiles the
// communicator whose ranks are threads.

#include <colls/threads.hpp>

COLLS_COMMUNICATOR(, colls::thread_transport)
