// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// source: the definitions of all calls and of `join` and `run`, for separate compilation. By
// default, every source file that uses colls compiles these definitions. To compile them only once,
// define COLLS_SEPARATE_COMPILATION in all source files of the program, and include this header in
// exactly one of them. In the other source files, the headers of colls then only declare these
// functions. Most headers, for example <colls/run.hpp>, then do not include Asio. The headers
// <colls/join.hpp>, <colls/asio.hpp>, <colls/interprocess.hpp> and <colls/torch.hpp> still do. A
// source file that calls `world.dup(executor)` or trains with <colls/ddp/gradient_buckets.hpp> must
// include <colls/interprocess.hpp>.
//
// To compile the definitions in parallel, do not include this header. Instead, include each header
// of the directory `source/` in a source file of its own.

#ifndef COLLS_SEPARATE_COMPILATION
#error "colls/source.hpp is for programs that define COLLS_SEPARATE_COMPILATION everywhere"
#endif

#include <colls/source/base.hpp>
#include <colls/source/inproc.hpp>
#include <colls/source/interprocess.hpp>
#include <colls/source/interprocess_transport.hpp>
#include <colls/source/joining.hpp>
#include <colls/source/threads.hpp>
