// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

// error: the error codes, the failure record that explains an error, and the exception class.

#include <colls/base/error.hpp>
