// SPDX-FileCopyrightText: 2026 The colls authors
// SPDX-License-Identifier: BSL-1.0
// colls compiled once for our own programs (COLLS_SEPARATE_COMPILATION).
#include <colls/source.hpp>
