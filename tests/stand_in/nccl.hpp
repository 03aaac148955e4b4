// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A STAND-IN for NCCL, on the stand-in for CUDA. No GPU takes part: a test that passes with it does
// not show that anything works on a GPU. A collective is done when it is the first command of the
// streams of all its ranks. Calls are accepted late, by the seed of the machine, and calls that
// NCCL forbids are complained about.

#include <cstddef>
#include <string>
#include <vector>

namespace stand_in {

/// Called after boot. `versions`: the results of successive queries of the version, of which the
/// last is repeated; `has_blocks`: the header has gather, scatter and all_to_all.
void boot_nccl(std::vector<int> versions = {22809}, int late_percent = 30, bool has_blocks = true);

/// From now on all communicators report this status, and so does each call on one.
void break_nccl(int status);
/// The number of communicators that were neither destroyed nor aborted.
int nccl_alive();
/// The number of communicators that were aborted.
int nccl_aborted();
/// What a rank of any communicator has enqueued, as "all_reduce", "(send recv)", ...
std::vector<std::string> nccl_calls(int rank);
/// The number of times that ranks called differently: on a GPU such calls hang, or do anything.
int nccl_mismatches();

}  // namespace stand_in
