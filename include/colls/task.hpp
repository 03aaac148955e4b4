// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// task: coroutines, and `when_all` to run several of them concurrently.

#include <colls/coroutine/task.hpp>
#include <colls/coroutine/when_all.hpp>
