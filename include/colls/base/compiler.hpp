// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// compiler: macros that mark functions for GPU kernels and for separate compilation.

/// Marks a function that runs on the CPU and in GPU kernels.
#ifdef __CUDACC__
#define COLLS_HOST_DEVICE __host__ __device__
#else
#define COLLS_HOST_DEVICE
#endif

/// Goes before a host and device template that runs wherever its arguments' functions run. It
/// disables nvcc's check that those functions exist on both sides.
#ifdef __CUDACC__
#define COLLS_ANYWHERE _Pragma("nv_exec_check_disable")
#else
#define COLLS_ANYWHERE
#endif

/// Marks a host and device function in loops that are compiled for several instruction sets. It is
/// always inlined, since a call would leave the instruction set of the loop.
#define COLLS_INLINE [[gnu::always_inline]] COLLS_HOST_DEVICE

/// Marks non-template functions of `.ipp` files: inline, unless one file of the program compiles
/// them for all others (see <colls/source.hpp>).
#ifdef COLLS_SEPARATE_COMPILATION
#define COLLS_ONCE
#else
#define COLLS_ONCE inline
#endif
