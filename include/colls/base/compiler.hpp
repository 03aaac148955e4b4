// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// compiler: macros for functions that GPU kernels can call, and for functions that are compiled
// only once per program.

#include <colls/base/build_check.hpp>

/// Marks a function that can run on the CPU and in GPU kernels.
#ifdef __CUDACC__
#define COLLS_HOST_DEVICE __host__ __device__
#else
#define COLLS_HOST_DEVICE
#endif

/// Marks a function template that calls functions of its template arguments. This macro is written
/// before `template`. It disables nvcc's check that each function that the template calls can run
/// both on the CPU and in GPU kernels. An instance of the template can then be used wherever the
/// functions that it calls can run.
#ifdef __CUDACC__
#define COLLS_ANYWHERE _Pragma("nv_exec_check_disable")
#else
#define COLLS_ANYWHERE
#endif

/// Marks a function that can run on the CPU and in GPU kernels and is always inlined. Such
/// functions are called by loops that are compiled several times, for different instruction sets of
/// the CPU. A function that is not inlined would not be compiled for the instruction set of the
/// loop.
#define COLLS_INLINE [[gnu::always_inline]] COLLS_HOST_DEVICE

/// Marks a non-template function of an `.ipp` file. The function is inline by default. If
/// COLLS_SEPARATE_COMPILATION is defined, the function is not inline, and one source file of the
/// program compiles all such functions (see <colls/source.hpp>).
/// It also marks the declaration of a virtual function that an `.ipp` file defines: where every
/// virtual function of a class is inline, only files that use the class contain its functions.
#ifdef COLLS_SEPARATE_COMPILATION
#define COLLS_ONCE
#else
#define COLLS_ONCE inline
#endif
