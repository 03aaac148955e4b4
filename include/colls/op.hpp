// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The built-in operations of reductions.

#include <colls/base/op.hpp>
