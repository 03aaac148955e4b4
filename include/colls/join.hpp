// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// join: from a launcher's environment (or a config) to the world.

#include <colls/bootstrap/launcher_environment.hpp>
#include <colls/driver/engine.hpp>
#include <colls/world.hpp>

namespace colls {

/// Joins the world that `how` describes: `co_await colls::join(executor, colls::environment())`.
/// Every rank holds the world afterwards, or a `colls::error` that says who or what is missing and
/// what to do, within the one deadline of the config. All further work of the world happens on
/// `executor` (an io_context's, or a strand), which outlives it.
operation<world> join(const boost::asio::any_io_executor& executor, config how = environment());

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/join.ipp>
#endif
