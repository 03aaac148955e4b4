// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/inproc: a part of source.hpp for programs that define COLLS_SEPARATE_COMPILATION. The one
// source file that includes this header compiles the functions of the communicator whose ranks are
// coroutines on one thread.

#include <colls/inproc.hpp>

#include <colls/call/communicator.ipp>
#include <colls/transport/inproc/inproc_transport.ipp>

COLLS_COMMUNICATOR(, colls::inproc_transport)
