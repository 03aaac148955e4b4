// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls between two processes that see each other's device memory, and a process that is killed
// while its memory is mapped. Without a GPU: that it compiles, and that attaching ends with an
// error of colls.

#include <colls/cuda/ipc.hpp>

using tested = colls::cuda::cuda_ipc;
#include "between_processes.hpp"

int main() { return between_processes(); }
