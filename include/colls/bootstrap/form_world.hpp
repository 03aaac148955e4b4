// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The bootstrap of a world, in which the ranks find each other. It ends before the ranks connect to
// each other.

#include <colls/bootstrap/world_info.hpp>

namespace colls {

/// Forms the world that `opts` describes, and returns what this rank knows about the world. Waits
/// until all ranks have joined, but at most for `opts.join_timeout`. When the world has formed,
/// every rank has the same node map (the node of each rank) and listens at an address that all
/// ranks know or can look up. In a world of one rank, opens no sockets. If the world cannot form,
/// throws an error that names the affected ranks and machines and suggests a remedy.
///
/// `transport` is the name of a transport that is not one of colls, or null. Ranks that pass
/// different names do not join. A process that is a replacement first waits for its place in a
/// world, without a time limit. `attempt` counts the calls with which it does so, from 1.
task<world_info> form_world(engine& driver, config opts, const char* transport = nullptr,
                            int attempt = 1);

namespace detail {

/// Returns `opts` unchanged if its address is not `env://`. Otherwise returns the config that the
/// launcher's environment variables describe. In this config, the members that the program has set
/// in `opts` replace the launcher's values.
config complete_from_environment(const config& opts);

}  // namespace detail

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/form_world.ipp>
#endif
