// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// The headers that include all others, for odr_a.cpp and odr_b.cpp.
#pragma once

#include <colls/buffer.hpp>
#include <colls/error.hpp>
#include <colls/sync_wait.hpp>
#include <colls/when_all.hpp>
