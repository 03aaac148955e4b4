// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls between two processes by NCCL, and a process that is killed in a call. If the processes
// share a GPU, each counts as a host of its own, because NCCL before 2.30 would refuse them. This
// is correct but slow. Without a GPU this tests that the program compiles and links, and that
// attaching fails with an error of colls.

#include <colls/cuda/nccl.hpp>

using tested = colls::cuda::nccl;
#include "between_processes.hpp"

int main() {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  return between_processes();
}
