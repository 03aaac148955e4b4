// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// What the fuzzers attack, compiled once for all of them: joining and the tcp transport, without the
// calls of communicators, which take most of the time to compile.
#include <colls/rendezvous/environment.hpp>
#include <colls/rendezvous/file_store.hpp>
#include <colls/rendezvous/tcp_store.hpp>
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
#include <colls/impl/rendezvous/known_variables.ipp>
#include <colls/impl/rendezvous/local_key.ipp>
#include <colls/impl/rendezvous/membership.ipp>
#include <colls/impl/rendezvous/store_server.ipp>
#include <colls/impl/rendezvous/tcp_store.ipp>
#include <colls/impl/transport/tcp.ipp>
#include <colls/impl/transport/tcp/delivery.ipp>
#include <colls/impl/transport/tcp/lender.ipp>
#include <colls/impl/transport/tcp/link.ipp>
#include <colls/impl/transport/tcp/links.ipp>
#include <colls/impl/transport/tcp/opener.ipp>
#include <colls/matching/tag_matcher.ipp>
#include <colls/os/crc32c.ipp>
#include <colls/os/log_writer.ipp>
