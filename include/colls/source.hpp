// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source: the definitions of all calls and of `join` and `run`, for separate compilation. Without
// this header, every file of a program that uses colls compiles these definitions. To compile them
// only once, define COLLS_SEPARATE_COMPILATION in all files of the program and include this header
// in one file. All other files then see only declarations, and see Asio only if they include Asio
// themselves. To compile the definitions in parallel, include each header of `source/` in a file of
// its own instead of this header. A file that calls `world.dup(executor)` has to include
// <colls/interprocess.hpp>.

#ifndef COLLS_SEPARATE_COMPILATION
#error "colls/source.hpp is for programs that define COLLS_SEPARATE_COMPILATION everywhere"
#endif

#include <colls/source/base.hpp>
#include <colls/source/inproc.hpp>
#include <colls/source/interprocess.hpp>
#include <colls/source/interprocess_transport.hpp>
#include <colls/source/joining.hpp>
#include <colls/source/threads.hpp>
