// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/interprocess_transport: a part of source.hpp for programs that define
// COLLS_SEPARATE_COMPILATION. The one source file that includes this header compiles the functions
// of the transport between processes.

#include <colls/transport/interprocess/connection.ipp>
#include <colls/transport/interprocess/connection_table.ipp>
#include <colls/transport/interprocess/connector.ipp>
#include <colls/transport/interprocess/eager_rendezvous.ipp>
#include <colls/transport/interprocess/interprocess_transport.ipp>
#include <colls/transport/interprocess/peer_protocol.ipp>
#include <colls/transport/interprocess/transport_base.ipp>
#include <colls/transport/interprocess/window/window_manager.ipp>
