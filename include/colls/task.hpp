// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// Coroutines, and several of them at once.

#include <colls/coroutine/task.hpp>
#include <colls/coroutine/when_all.hpp>
