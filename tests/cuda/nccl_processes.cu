// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls between two processes by NCCL, and a process that is killed in one. Where they share a GPU
// each counts as a host of its own, since NCCL before 2.30 refuses them else: right, and slow.
// Without a GPU: that it compiles and links, and that attaching ends with an error of colls.

#include <colls/cuda/nccl.hpp>

using tested = colls::cuda::nccl;
#include "between_processes.hpp"

int main() {
  ::setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  return between_processes();
}
