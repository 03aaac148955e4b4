// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// world: the communicator of a launcher's job, by name; its transport need not be known to call it.

#include <colls/call/communicator.hpp>

namespace colls {

class tcp_transport;

/// The communicator that a launcher created: all ranks of the job.
using world = communicator<tcp_transport>;

}  // namespace colls

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_COMMUNICATOR(extern, colls::tcp_transport)
#endif
