// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// communicator: the public API of collectives and point-to-point calls.

#include <colls/call/communicator.hpp>
