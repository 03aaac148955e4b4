// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// WIDEST: a loop of a floor is compiled for the widest registers that the machine has.

#if defined(__x86_64__) && !defined(__clang__)
#define WIDEST [[gnu::target_clones("default", "avx2", "arch=skylake-avx512"), gnu::optimize("O3")]]
#else
#define WIDEST
#endif
