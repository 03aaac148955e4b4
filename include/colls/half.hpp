// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// half: float16 and bfloat16.

#include <colls/base/half.hpp>
