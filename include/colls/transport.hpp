// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// transport: what a program includes that has a transport of its own (see
// docs/adding_a_transport.md): the classes on which it builds the transport, and the definitions of
// `join` and `run` for any transport.

#include <colls/colls.hpp>
#include <colls/transport/interprocess/carrier/stream_pipe.hpp>
#include <colls/transport/interprocess/transport_base.hpp>

#include <colls/call/communicator.ipp>
#include <colls/join.ipp>
#include <colls/run.ipp>
