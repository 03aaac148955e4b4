// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// suite: runs every algorithm of every collective over any world of transports and compares with
// plain loops: the results, the buffers that must stay unchanged, and the number of messages and
// bytes.

#include "movements.hpp"
#include "reductions.hpp"

namespace conformance {

/// Runs everything in one world.
template <class World>
void conforms() {
  using moves = movements<World>;
  using reduces = reductions<World>;
  SUBCASE("barrier") { moves::barrier(); }
  SUBCASE("broadcast") { moves::broadcast(); }
  SUBCASE("all_reduce") { reduces::all_reduce(); }
  SUBCASE("all_reduce over nodes") { reduces::all_reduce_over_nodes(); }
  SUBCASE("reduce") { reduces::reduce(); }
  SUBCASE("reduce_scatter") { reduces::reduce_scatter(); }
  SUBCASE("all_gather") { moves::all_gather(); }
  SUBCASE("gather") { moves::gather(); }
  SUBCASE("scatter") { moves::scatter(); }
  SUBCASE("all_to_all") { moves::all_to_all(); }
  SUBCASE("scan") { reduces::scan(); }
  SUBCASE("exscan") { reduces::exscan(); }
}

}  // namespace conformance
