// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// What can go wrong: an error_code, a record that explains it, an exception.

#include <colls/base/error.hpp>
