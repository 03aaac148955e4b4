// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// repair: how the ranks that are left of a world get replacements from the launcher, and form the
// next world with them.

#include <colls/base/recovery.hpp>
#include <colls/bootstrap/form_world.hpp>
#include <colls/bootstrap/launcher_store.hpp>

#include <memory>
#include <string>
#include <vector>

namespace colls {

/// Asks the launcher of the world `info` for its next world, and returns the text of a
/// `next_world`. The text is empty if no replacement comes in, so that the ranks that are left need
/// no new world. Called on one of these ranks, which are `left`. Throws `no_replacement` if too few
/// replacements have come, or if the launcher does not answer. `driver` and `info` must outlive the
/// task.
task<std::string> request_next_world(engine& driver, const world_info& info, std::vector<int> left,
                                     recovery_options opts, time_point deadline);

/// A world that has followed another.
struct repaired_world {
  std::shared_ptr<engine> driver;
  std::shared_ptr<world_info> info;
  std::vector<int> previous_ranks;  // see `next_world`
};

/// Forms the world that the text `next` describes, which follows the world `info`, with all its
/// ranks. Throws the errors of `form_world`. `driver` and `info` must outlive the task.
task<repaired_world> form_next_world(engine& driver, const world_info& info, std::string next,
                                     time_point deadline);

/// Tells the replacements in the world `info` that all other ranks are in it, and passes `state` to
/// them. Each rank that is no replacement calls it with the same state.
task<> admit_replacements(const world_info& info, std::string state, time_point deadline);

}  // namespace colls

#ifndef COLLS_SEPARATE_COMPILATION
#include <colls/bootstrap/repair.ipp>
#endif
