// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// half: the 16-bit floating-point types float16 and bfloat16.

#include <colls/base/half.hpp>
