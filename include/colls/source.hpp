// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// For programs of many files: all that joining, running and communicators' calls do, compiled once.
// Define COLLS_SEPARATE_COMPILATION in the whole program and include this in one file of it; the
// others then see declarations, and no Asio unless they include it. A file that calls
// `world.dup(executor)` includes <colls/interprocess.hpp>.

#ifndef COLLS_SEPARATE_COMPILATION
#error "colls/source.hpp is for programs that define COLLS_SEPARATE_COMPILATION everywhere"
#endif

#include <colls/bootstrap/form_world.hpp>
#include <colls/bootstrap/form_world_by_file.hpp>
#include <colls/join.hpp>
#include <colls/run.hpp>
#include <colls/threads.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <colls/base/error.ipp>
#include <colls/base/fingerprint.ipp>
#include <colls/base/log.ipp>
#include <colls/bootstrap/authenticating_listener.ipp>
#include <colls/bootstrap/dial.ipp>
#include <colls/bootstrap/file_store.ipp>
#include <colls/bootstrap/form_world.ipp>
#include <colls/bootstrap/handshake.ipp>
#include <colls/bootstrap/known_variables.ipp>
#include <colls/bootstrap/launcher_environment.ipp>
#include <colls/bootstrap/local_secret.ipp>
#include <colls/bootstrap/store_server.ipp>
#include <colls/bootstrap/tcp_store.ipp>
#include <colls/bootstrap/world_info.ipp>
#include <colls/driver/engine.ipp>
#include <colls/driver/socket.ipp>
#include <colls/join.ipp>
#include <colls/matching/tag_matcher.ipp>
#include <colls/os/crc32c.ipp>
#include <colls/os/log_writer.ipp>
#include <colls/run.ipp>
#include <colls/transport/inproc/inproc_transport.ipp>
#include <colls/transport/interprocess/connection.ipp>
#include <colls/transport/interprocess/connection_table.ipp>
#include <colls/transport/interprocess/connector.ipp>
#include <colls/transport/interprocess/eager_rendezvous.ipp>
#include <colls/transport/interprocess/interprocess_transport.ipp>
#include <colls/transport/interprocess/window/window_manager.ipp>

COLLS_REDUCTIONS()
COLLS_COMMUNICATOR(, colls::inproc_transport)
COLLS_COMMUNICATOR(, colls::thread_transport)
COLLS_COMMUNICATOR(, colls::tcp_transport)
