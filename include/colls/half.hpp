// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// float16 and bfloat16.

#include <colls/base/half.hpp>
