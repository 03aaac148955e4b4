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
#include <colls/run.hpp>
#include <colls/simulated.hpp>
#include <colls/threads.hpp>

#include <colls/impl/rendezvous/join.ipp>
#include <colls/impl/run.ipp>

COLLS_COMMUNICATOR(, colls::inproc_transport)
COLLS_COMMUNICATOR(, colls::simulated_transport)
COLLS_COMMUNICATOR(, colls::thread_transport)
COLLS_COMMUNICATOR(, colls::tcp_transport)
