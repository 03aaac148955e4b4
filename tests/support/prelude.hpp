// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What most tests include. Builds with clang precompile it; no file includes it.

#include <colls/colls.hpp>
#include <colls/inproc.hpp>
#include <colls/interprocess.hpp>
#include <colls/simulated.hpp>
#include <colls/threads.hpp>
#include <doctest/doctest.h>
