// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// The collectives as users call them.

#include <colls/call/communicator.hpp>
