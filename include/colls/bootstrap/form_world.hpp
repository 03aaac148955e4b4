// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// form_world: the bootstrap of a world, which is the part of joining that precedes the first
// connection between ranks.

#include <colls/bootstrap/world_info.hpp>

namespace colls {

/// Waits until all ranks of the world have joined, but at most for `opts.join_timeout`. Afterwards
/// every rank has the same node map (the node of each rank), and a listener at an address that all
/// ranks know or can look up. A world of one rank opens no sockets. Throws an error that names the
/// ranks, the machines and a remedy.
task<world_info> form_world(engine& driver, config opts);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/form_world.ipp>
#endif
