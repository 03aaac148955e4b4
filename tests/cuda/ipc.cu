// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls between threads that access each other's device memory. Without a GPU this tests that the
// program compiles, and that attaching fails with an error of colls.

#include <colls/cuda/ipc.hpp>

#include "calls.hpp"

int main() { return between_threads<colls::cuda::cuda_ipc>() == 0 ? 0 : 1; }
