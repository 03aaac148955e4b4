// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What a program may say about its world, and what its launcher says.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
