// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What UCX does not free is no failure of a test: a worker is not destroyed if its rank ends while
// a peer connects to it (see `ucx::detail::worker`). Included by one file of a program.

#include "sanitized.hpp"

#ifdef ADDRESS_SANITIZED
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libucs.so\nleak:libucp.so"; }
#endif
