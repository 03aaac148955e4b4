// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// compiler: macros that mark functions for GPU kernels and for separate compilation.

/// Marks a function that can run on the CPU and in GPU kernels.
#ifdef __CUDACC__
#define COLLS_HOST_DEVICE __host__ __device__
#else
#define COLLS_HOST_DEVICE
#endif

/// Precedes a function template that calls functions of its arguments and can run wherever these
/// functions can. Disables the check of nvcc that these functions exist both for the CPU and for
/// the GPU.
#ifdef __CUDACC__
#define COLLS_ANYWHERE _Pragma("nv_exec_check_disable")
#else
#define COLLS_ANYWHERE
#endif

/// Marks a function that can run on the CPU and in GPU kernels, and that is called in loops which
/// are compiled for several instruction sets. The function is always inlined because a separate
/// function would not be compiled for the instruction set of the loop.
#define COLLS_INLINE [[gnu::always_inline]] COLLS_HOST_DEVICE

/// Marks the non-template functions of `.ipp` files. These functions are inline, unless one source
/// file of the program compiles them for all others (see <colls/source.hpp>).
#ifdef COLLS_SEPARATE_COMPILATION
#define COLLS_ONCE
#else
#define COLLS_ONCE inline
#endif
