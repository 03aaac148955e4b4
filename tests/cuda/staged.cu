// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0

// Calls on device memory between threads, staged through pinned memory. Without a GPU this tests
// that the program compiles, and that attaching fails with an error of colls.

#include <colls/cuda/staged.hpp>

#include "calls.hpp"

int main() { return between_threads<colls::cuda::staged>() == 0 ? 0 : 1; }
