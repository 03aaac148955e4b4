// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// WIDEST: compiles the loop of a floor for the widest registers of the machine.

#if defined(__x86_64__) && !defined(__clang__)
#define WIDEST [[gnu::target_clones("default", "avx2", "arch=skylake-avx512"), gnu::optimize("O3")]]
#else
#define WIDEST
#endif
