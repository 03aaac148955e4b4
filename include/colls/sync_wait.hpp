// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// sync_wait: a blocking wait for an operation, for functions that are not coroutines.

#include <colls/coroutine/sync_wait.hpp>
