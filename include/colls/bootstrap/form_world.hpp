// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// form_world: bootstrap of a world, the part of joining before the first connection between ranks.

#include <colls/bootstrap/world_info.hpp>

namespace colls {

/// Waits until all ranks of the world have joined, at most `opts.join_timeout`. Afterwards every
/// rank has the same node map, and a listener whose address all ranks know. A world of one opens no
/// sockets. Throws an error that names the ranks, the hosts and a remedy.
task<world_info> form_world(engine& driver, config opts);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/form_world.ipp>
#endif
