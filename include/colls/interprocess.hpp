// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// interprocess: the transport between processes. Include this header in a file that needs the
// complete type of the transport, for example because the file calls `world.dup(executor)`.

#include <colls/call/communicator.ipp>
#include <colls/transport/interprocess/interprocess_transport.hpp>
