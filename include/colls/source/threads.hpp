// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/threads: a part of source.hpp for programs that define COLLS_SEPARATE_COMPILATION. The one
// source file that includes this header compiles the functions of the communicator whose ranks are
// threads.

#include <colls/threads.hpp>

#include <colls/call/communicator.ipp>

COLLS_COMMUNICATOR(, colls::thread_transport)
