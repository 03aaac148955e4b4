// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// join: joins the world of ranks that a config or the launcher's environment variables describe.

#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/driver/engine.hpp>
#include <colls/world.hpp>

namespace colls {

/// Joins the world that `cfg` describes, for example by `co_await colls::join(executor,
/// colls::environment())`. The result of the operation is the world communicator of this rank. If
/// joining fails, the operation ends soon after `cfg.join_timeout` at the latest, and throws a
/// `colls::error`. The text of the error names the missing rank or setting and tells the user what
/// to do. All further work of the world runs on `executor`, which must belong to an io_context or a
/// strand and must outlive the world.
///
/// `Transport` may be a transport of the user's own (see docs/adding_a_transport.md). Its `make`
/// has to end by itself.
template <class Transport = interprocess_transport>
operation<communicator<Transport>> join(const boost::asio::any_io_executor& executor,
                                        config cfg = environment());

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/join.ipp>
#else
extern template colls::operation<colls::world> colls::join<colls::interprocess_transport>(
    const boost::asio::any_io_executor&, colls::config);
#endif
