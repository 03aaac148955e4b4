// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/inproc: a part of source.hpp for separate compilation. It compiles the communicator whose
// ranks are coroutines of one thread.

#include <colls/inproc.hpp>

#include <colls/transport/inproc/inproc_transport.ipp>

COLLS_COMMUNICATOR(, colls::inproc_transport)
