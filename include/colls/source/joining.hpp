// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source/joining: a part of source.hpp for programs that define COLLS_SEPARATE_COMPILATION. The one
// source file that includes this header compiles the functions by which processes join a world (the
// set of all ranks) and run in it.

#include <colls/bootstrap/form_world_by_file.hpp>
#include <colls/bootstrap/form_world_by_pmi.hpp>
#include <colls/join.hpp>
#include <colls/run.hpp>

#include <colls/bootstrap/authenticating_listener.ipp>
#include <colls/bootstrap/dial.ipp>
#include <colls/bootstrap/file_store.ipp>
#include <colls/bootstrap/form_world.ipp>
#include <colls/bootstrap/handshake.ipp>
#include <colls/bootstrap/key_value_space.ipp>
#include <colls/bootstrap/known_variables.ipp>
#include <colls/bootstrap/launcher_environment.ipp>
#include <colls/bootstrap/launcher_store.ipp>
#include <colls/bootstrap/local_secret.ipp>
#include <colls/bootstrap/network_interfaces.ipp>
#include <colls/bootstrap/pmi_client.ipp>
#include <colls/bootstrap/pmix_client.ipp>
#include <colls/bootstrap/repair.ipp>
#include <colls/bootstrap/store_server.ipp>
#include <colls/bootstrap/tcp_store.ipp>
#include <colls/bootstrap/world_info.ipp>
#include <colls/driver/engine.ipp>
#include <colls/driver/socket.ipp>
#include <colls/join.ipp>
#include <colls/run.ipp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

template colls::operation<colls::world> colls::join<colls::interprocess_transport>(
    const boost::asio::any_io_executor&, colls::config);
template int colls::detail::run_world<colls::interprocess_transport>(colls::config,
                                                                     int (*)(void*, colls::world&),
                                                                     void*);
