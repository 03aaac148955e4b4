// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// For programs of many files: all that joining, running and communicators' calls do, compiled once.
// Define COLLS_SEPARATE_COMPILATION in the whole program and include this in one file of it; the
// others then see declarations, and no Asio unless they include it. A file that calls
// `world.dup(executor)` includes <colls/transport/tcp.hpp>.

#ifndef COLLS_SEPARATE_COMPILATION
#error "colls/source.hpp is for programs that define COLLS_SEPARATE_COMPILATION everywhere"
#endif

#include <colls/rendezvous/join.hpp>
#include <colls/rendezvous/meet.hpp>
#include <colls/rendezvous/meet_file.hpp>
#include <colls/run.hpp>
#include <colls/threads.hpp>
#include <colls/transport/tcp.hpp>

#include <colls/base/error.ipp>
#include <colls/base/fingerprint.ipp>
#include <colls/base/log.ipp>
#include <colls/driver/engine.ipp>
#include <colls/driver/socket.ipp>
#include <colls/impl/rendezvous/authenticate.ipp>
#include <colls/impl/rendezvous/door.ipp>
#include <colls/impl/rendezvous/environment.ipp>
#include <colls/impl/rendezvous/file_store.ipp>
#include <colls/impl/rendezvous/join.ipp>
#include <colls/impl/rendezvous/known_variables.ipp>
#include <colls/impl/rendezvous/local_key.ipp>
#include <colls/impl/rendezvous/meet.ipp>
#include <colls/impl/rendezvous/membership.ipp>
#include <colls/impl/rendezvous/reach.ipp>
#include <colls/impl/rendezvous/store_server.ipp>
#include <colls/impl/rendezvous/tcp_store.ipp>
#include <colls/impl/run.ipp>
#include <colls/impl/transport/inproc.ipp>
#include <colls/impl/transport/tcp.ipp>
#include <colls/impl/transport/tcp/delivery.ipp>
#include <colls/impl/transport/tcp/lender.ipp>
#include <colls/impl/transport/tcp/link.ipp>
#include <colls/impl/transport/tcp/links.ipp>
#include <colls/impl/transport/tcp/opener.ipp>
#include <colls/matching/tag_matcher.ipp>
#include <colls/os/crc32c.ipp>
#include <colls/os/log_writer.ipp>

COLLS_REDUCTIONS()
COLLS_COMMUNICATOR(, colls::inproc_transport)
COLLS_COMMUNICATOR(, colls::thread_transport)
COLLS_COMMUNICATOR(, colls::tcp_transport)
