// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// config: the settings with which a process joins a world. The program sets them, or the launcher
// sets them in environment variables.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
