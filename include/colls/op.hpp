// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// op: the built-in reduction operations.

#include <colls/base/op.hpp>
