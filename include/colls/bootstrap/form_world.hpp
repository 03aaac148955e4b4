// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// meet: the processes of a job find each other. Everything of joining up to the first link.

#include <colls/bootstrap/world_info.hpp>

namespace colls {

/// Waits until all ranks of the world have come, within `given.join_timeout`. Afterwards every rank
/// has the same node map and a listener that every other rank can reach and knows. A world of one
/// opens nothing. Throws an error that names ranks, hosts and what to do.
task<membership> meet(engine& on, config given);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/form_world.ipp>
#endif
