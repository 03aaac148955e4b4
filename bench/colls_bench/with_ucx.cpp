// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// Adds UCX to colls-bench.
#include <colls/transport/ucx.hpp>
