// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The code under test, compiled once for all fuzzers: joining and the interprocess transport,
// without the calls of communicators, which take most of the time to compile.
#include <colls/bootstrap/file_store.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/bootstrap/tcp_store.hpp>
#include <colls/transport/interprocess/interprocess_transport.hpp>

#include <colls/base/build_check.ipp>
#include <colls/base/error.ipp>
#include <colls/base/fingerprint.ipp>
#include <colls/base/log.ipp>
#include <colls/base/node_map.ipp>
#include <colls/bootstrap/authenticating_listener.ipp>
#include <colls/bootstrap/file_store.ipp>
#include <colls/bootstrap/handshake.ipp>
#include <colls/bootstrap/known_variables.ipp>
#include <colls/bootstrap/launcher_environment.ipp>
#include <colls/bootstrap/local_secret.ipp>
#include <colls/bootstrap/store_server.ipp>
#include <colls/bootstrap/tcp_store.ipp>
#include <colls/bootstrap/world_info.ipp>
#include <colls/coroutine/completion.ipp>
#include <colls/driver/engine.ipp>
#include <colls/driver/socket.ipp>
#include <colls/matching/communicator_recovery.ipp>
#include <colls/matching/communicator_table.ipp>
#include <colls/matching/consensus.ipp>
#include <colls/matching/recovery_message.ipp>
#include <colls/matching/tag_matcher.ipp>
#include <colls/os/crc32c.ipp>
#include <colls/os/log_writer.ipp>
#include <colls/transport/interprocess/connection.ipp>
#include <colls/transport/interprocess/connection_table.ipp>
#include <colls/transport/interprocess/connector.ipp>
#include <colls/transport/interprocess/eager_rendezvous.ipp>
#include <colls/transport/interprocess/interprocess_transport.ipp>
#include <colls/transport/interprocess/peer_protocol.ipp>
#include <colls/transport/interprocess/transport_base.ipp>
#include <colls/transport/interprocess/window/window_manager.ipp>
