// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// A STAND-IN for NCCL, on the stand-in for CUDA: no GPU takes part, and nothing that passes with it
// says that it works on one. Work of several ranks meets when the streams of all of them have got
// there; calls are taken late, by the seed of the machine, and complain of what NCCL forbids.

#include <cstddef>
#include <string>
#include <vector>

namespace stand_in {

/// After boot: what runs, for each who asks in turn, the last one for ever; and whether the header
/// has gather, scatter and all_to_all.
void boot_nccl(std::vector<int> versions = {22809}, int late_percent = 30, bool has_blocks = true);

/// From now on all communicators say this of themselves, and so does each call on one.
void break_nccl(int status);
/// Communicators that were not given back, and how many were aborted.
int nccl_alive();
int nccl_aborted();
/// What was enqueued, as "all_reduce", "(send recv)", ..., by a rank of any communicator.
std::vector<std::string> nccl_calls(int rank);
/// Meetings of ranks that called differently: on a GPU they hang, or do anything.
int nccl_mismatches();

}  // namespace stand_in
