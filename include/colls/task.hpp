// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// task: the coroutine type `task`, and `when_all`, which runs several operations concurrently.

#include <colls/coroutine/task.hpp>
#include <colls/coroutine/when_all.hpp>
