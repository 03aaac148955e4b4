// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// compiler: how functions are marked: those that kernels are made of, and those that one file of a
// program may compile for all others.

/// The function runs on the CPU and in GPU kernels.
#ifdef __CUDACC__
#define COLLS_HOST_DEVICE __host__ __device__
#else
#define COLLS_HOST_DEVICE
#endif

/// Before a template that runs where its arguments' functions do: nvcc is not to ask for both.
#ifdef __CUDACC__
#define COLLS_ANYWHERE _Pragma("nv_exec_check_disable")
#else
#define COLLS_ANYWHERE
#endif

/// Host and device, and part of a loop that is compiled for several instruction sets: a call would
/// leave the loop's set.
#define COLLS_INLINE [[gnu::always_inline]] COLLS_HOST_DEVICE

/// Functions without templates are inline, unless one file of the program compiles them for all
/// others: see <colls/source.hpp>.
#ifdef COLLS_SEPARATE_COMPILATION
#define COLLS_ONCE
#else
#define COLLS_ONCE inline
#endif
