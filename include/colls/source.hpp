// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source: the definitions of joining, running and all calls, for programs of several files that
// should compile them only once. Define COLLS_SEPARATE_COMPILATION in the whole program and include
// this header in one file. To compile in parallel, include each header of `source/` in a file of
// its own instead. The other files then see only declarations, and see Asio only if they include
// it. A file that calls `world.dup(executor)` has to include <colls/interprocess.hpp>.

#ifndef COLLS_SEPARATE_COMPILATION
#error "colls/source.hpp is for programs that define COLLS_SEPARATE_COMPILATION everywhere"
#endif

#include <colls/source/base.hpp>
#include <colls/source/inproc.hpp>
#include <colls/source/interprocess.hpp>
#include <colls/source/interprocess_transport.hpp>
#include <colls/source/joining.hpp>
#include <colls/source/threads.hpp>
