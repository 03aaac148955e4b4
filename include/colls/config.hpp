// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// config: the settings of a world, which come from the program or from the launcher's environment.

#include <colls/bootstrap/config.hpp>
#include <colls/bootstrap/launcher_environment.hpp>
