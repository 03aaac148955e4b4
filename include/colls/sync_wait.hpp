// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// sync_wait: waits for an operation in a function that is not a coroutine.

#include <colls/coroutine/sync_wait.hpp>
