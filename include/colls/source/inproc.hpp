// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/inproc: compiles the communicator of ranks that are coroutines of one thread.

#include <colls/inproc.hpp>

#include <colls/transport/inproc/inproc_transport.ipp>

COLLS_COMMUNICATOR(, colls::inproc_transport)
