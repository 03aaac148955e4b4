// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// world: the type `world`, the communicator of all ranks of a job. If the program defines
// COLLS_SEPARATE_COMPILATION, a source file that only makes calls on a world can include this
// header without the transport. Otherwise this header includes the transport.

#include <colls/call/communicator.hpp>

namespace colls {

class interprocess_transport;

/// The communicator of all ranks that the launcher has started.
using world = communicator<interprocess_transport>;

}  // namespace colls

#ifdef COLLS_SEPARATE_COMPILATION
COLLS_COMMUNICATOR(extern, colls::interprocess_transport)
#else
#include <colls/interprocess.hpp>
#endif
